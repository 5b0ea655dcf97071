"""The keys of `method` that configure how predictions are read."""

from typing import Any, Literal, TypedDict

from ptrun.readout.candidates import Objective, Scored
from ptrun.readout.class_words import Direction, Order, Share
from ptrun.readout.label_words import Among
from ptrun.readout.pooled_head import Pooler


class Reading(TypedDict, total=False):
    """The read-out keys that methods share; `readout` is one of four.

    - `head`: a learned linear map of hidden states. Keys `pooler` (`ptrun.readout.pooled_head`) and
      `literal_sep` (`ptrun.readout.token_head`); `head_dropout`, before the map, null is the
      backbone's.
    - `entailment`: a head that decides whether a label's description is entailed. Keys `pooler`
      and `head_dropout`.
    - `verbalizer`: words through the frozen language-model head. Keys `pattern`, a name in the
      task's `pvps`, null for the first that suits; `among` (auto is vocabulary for
      encoder-decoders, else labels) and `closed` (`ptrun.readout.label_words`); `objective`,
      `scored` and `swapped` (`ptrun.readout.candidates`); `random_masks` (`ptrun.readout.fill`);
      `sentinel` and `literal_sep` (`ptrun.readout.cloze`); `shifted_label` and `released_query`
      (`ptrun.readout.fact_words`).
    - `class_words`: ELECTRA's head over written-out classes. Keys `pattern`; `score_direction`,
      `class_bias`, `class_loss`, `class_order`, `class_marker` (`ptrun.readout.class_words`); for
      too many classes `class_tree` (@FILE or the tree) or `fan_out`, with `beam`
      (`ptrun.readout.class_tree`). On multi-span questions it reads the words of the passage:
      `score_direction`, `threshold`, `threshold_on` (`ptrun.readout.multispan.words`).
    """

    readout: Literal["head", "verbalizer", "entailment", "class_words"]
    pooler: Pooler
    head_dropout: float | None
    pattern: str | None
    among: Among | Literal["auto"]
    closed: bool | Literal["auto"]
    objective: Objective
    scored: Scored
    swapped: bool
    random_masks: bool
    literal_sep: bool
    sentinel: bool
    shifted_label: bool
    released_query: bool
    score_direction: Direction
    class_bias: bool
    class_loss: Share
    class_order: Order
    class_marker: bool
    threshold: float
    threshold_on: Direction
    class_tree: str | dict[str, Any] | list[Any] | None
    fan_out: int | None
    beam: int
