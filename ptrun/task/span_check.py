"""Span verification: does a pronoun refer to a given noun phrase (WSC)?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

from ptrun.errors import UserError
from ptrun.metrics.labels import Metric
from ptrun.task.classification import Classification
from ptrun.task.dataset import Common
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example

Starred = Literal["word", "pronoun"]
_MARKING = ["text", "span1_index", "span2_text", "span2_index"]


class SpanCheck(Classification):
    """Classification of (text, noun phrase, pronoun).

    Rows have `text`, `span1_text`, `span2_text` and the pronoun's word index `span2_index`. An
    example also has the field `marked`: the text with `*` around this one occurrence of the
    pronoun. `fields` may list it.

    Args beyond those of `Common`:
        fields, label, labels, metrics, positive, extra: as in `Classification`.
        starred: what of `him,` has the stars: the `word`, or the `pronoun`, which P-tuning's code
            splits off: `*him* ,`.
    """

    kind: ClassVar[str] = "span_check"
    fills_gap: ClassVar[bool] = True
    stratified: ClassVar[bool] = False

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        fields: list[str],
        label: str,
        labels: dict[str, str | int | bool],
        metrics: list[Metric] | None = None,
        positive: str | None = None,
        extra: list[str] | None = None,
        starred: Starred = "word",
        **common: Unpack[Common],
    ):
        keys: dict[str, Any] = {"fields": fields, "label": label, "labels": labels, "extra": extra}
        super().__init__(data_dir, variant, metrics=metrics, positive=positive, **keys, **common)
        self._starred = starred

    @property
    def reads(self) -> Sequence[str]:
        """The fields of a file that `unlabelled` needs, including those that mark the pronoun."""
        fields = [field for field in super().reads if field != "marked"]
        return list(dict.fromkeys([*fields, *_MARKING]))

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked texts of a row, including the marked one."""
        marked = {"marked": _marked(row, self._starred)}
        example = super().inputs(name, row.with_fields(marked))
        return replace(example, fields={**example.fields, **marked})


def _marked(row: Row, starred: Starred) -> str:
    words, pronoun = row.text("text").split(), row.text("span2_text")
    noun, size = row.value("span1_index"), len(pronoun.split())
    if type(noun) is not int or not 0 <= noun < len(words):
        raise UserError(f"{row.where}: span1_index is {shown(noun)}; expected a word's index.")
    place = _place(row, words, pronoun)
    whole = " ".join(words[place : place + size])
    star = pronoun if starred == "pronoun" and whole.startswith(pronoun) else whole
    rest = [whole.removeprefix(star)] if star != whole else []
    return " ".join([*words[:place], f"*{star}*", *rest, *words[place + size :]])


def _place(row: Row, words: list[str], pronoun: str) -> int:
    """Return the pronoun's word index; a published index may be off by one, as in PET's code."""
    index, size = row.value("span2_index"), len(pronoun.split())
    for place in (index, index - 1, index + 1) if type(index) is int and index >= 0 else ():
        if _bare(" ".join(words[max(place, 0) : place + size])) == _bare(pronoun) != "":
            return max(place, 0)
    raise UserError(f"{row.where}: the text does not have {shown(pronoun)} at word {shown(index)}.")


def _bare(words: str) -> str:
    return words.lower().strip(".,;:!?\"'()")
