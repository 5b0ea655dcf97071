"""The keys of `method` that say how an answer is read."""

from typing import Any, Literal, TypedDict

from ptrun.readout.candidates import Objective, Scored
from ptrun.readout.class_words import Direction, Order, Share
from ptrun.readout.label_words import Among
from ptrun.readout.pooled_head import Pooler


class Reading(TypedDict, total=False):
    """The keys by which every method says how it reads an answer.

    `readout` is `head`, a linear map of hidden states that is learned; `entailment`, one that tells
    whether a label's description is entailed; `verbalizer`, words through the frozen language-model
    head; or `class_words`, ELECTRA's own head where all classes are written out; on multi-span
    questions, where nothing is, over the words of the passage. For heads: `pooler`
    (`ptrun.readout.pooled_head`). For the last two: `pattern`, one of the task's by name, null for
    the first that suits. For class words: `score_direction`, `class_bias`, `class_loss`,
    `class_order` (`ptrun.readout.class_words`); where there are too many for a row `class_tree`
    (@FILE or the tree itself) or `fan_out`, with `beam` (`ptrun.readout.class_tree`); of a passage
    `threshold`, `threshold_on` (`ptrun.readout.multispan_words`). For verbalizers: `among`
    (`ptrun.readout.label_words`; auto is vocabulary for encoder-decoders, else labels) and `closed`
    (the same); `objective`, `scored` and `swapped` (`ptrun.readout.candidates`); `sentinel`
    (`ptrun.readout.cloze`); `shifted_label`, `released_query` (`ptrun.readout.fact_words`).
    """

    readout: Literal["head", "verbalizer", "entailment", "class_words"]
    pooler: Pooler
    pattern: str | None
    among: Among | Literal["auto"]
    closed: bool | Literal["auto"]
    objective: Objective
    scored: Scored
    swapped: bool
    sentinel: bool
    shifted_label: bool
    released_query: bool
    score_direction: Direction
    class_bias: bool
    class_loss: Share
    class_order: Order
    threshold: float
    threshold_on: Direction
    class_tree: str | dict[str, Any] | list[Any] | None
    fan_out: int | None
    beam: int
