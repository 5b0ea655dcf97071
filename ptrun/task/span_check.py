"""Span verification: does a pronoun mean a given noun phrase (WSC)?"""

from dataclasses import replace
from typing import ClassVar

from ptrun.errors import UserError
from ptrun.task.classification import Classification
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example

_MARKING = ["text", "span1_index", "span2_text", "span2_index"]


class SpanCheck(Classification):
    """Classification of (text, noun phrase, pronoun).

    Rows have `text`, `span1_text`, `span2_text` and the pronoun's word index `span2_index`. An
    example has `marked` besides: the text with `*` around the pronoun where it stands, so that
    equal words elsewhere stay as they are. `fields` may name it.
    """

    kind: ClassVar[str] = "span_check"

    @property
    def columns(self) -> list[str]:
        """The texts, and what marks the pronoun."""
        return [field for field in super().columns if field != "marked"] + _MARKING

    def inputs(self, name: str, row: Row) -> Example:
        """Return the texts of a row, the marked one too."""
        marked = _marked(row)
        plain = super().inputs(name, Row(row.where, {**row.data, "marked": marked}))
        return replace(plain, fields={**plain.fields, "marked": marked})


def _marked(row: Row) -> str:
    words, pronoun = row.text("text").split(), row.text("span2_text")
    noun = row.value("span1_index")
    if type(noun) is not int or not 0 <= noun < len(words):
        raise UserError(f"{row.where}: span1_index is {shown(noun)}; expected a word's index.")
    size = len(pronoun.split())
    place = _place(row, words, pronoun)
    found = " ".join(words[place : place + size])
    return " ".join([*words[:place], f"*{found}*", *words[place + size :]])


def _place(row: Row, words: list[str], pronoun: str) -> int:
    """Return where the pronoun stands; a published index may be one off, as PET's code has it."""
    given, size = row.value("span2_index"), len(pronoun.split())
    for place in (given, given - 1, given + 1) if type(given) is int and given >= 0 else ():
        if _bare(" ".join(words[max(place, 0) : place + size])) == _bare(pronoun) != "":
            return max(place, 0)
    raise UserError(
        f"{row.where}: {shown(pronoun)} does not stand at word {shown(given)} of the text."
    )


def _bare(words: str) -> str:
    return words.lower().strip(".,;:!?\"'()")
