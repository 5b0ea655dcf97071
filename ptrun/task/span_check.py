"""Span verification: does a pronoun mean a given noun phrase (WSC)?"""

from dataclasses import replace
from typing import Any, ClassVar

from ptrun.errors import UserError
from ptrun.task.classification import Classification
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example

_PLACES = ("span1_index", "span2_index")


class SpanCheck(Classification):
    """Classification of (text, noun phrase, pronoun).

    Beside `text`, `span1_text` and `span2_text` an example has `marked`: the text with `*` around
    the pronoun, at its own word index, so that equal words elsewhere stay as they are.
    """

    kind: ClassVar[str] = "classification"

    def example(self, name: str, row: Row) -> Example:
        """Return the example of a row, with the marked text."""
        plain = super().example(name, row)
        marked = _marked(row, *(row.value(place) for place in _PLACES))
        return replace(plain, fields={**plain.fields, "marked": marked})


def _marked(row: Row, noun: Any, place: Any) -> str:
    words, pronoun = row.text("text").split(), row.text("span2_text")
    if type(noun) is not int or not 0 <= noun < len(words):
        raise UserError(f"{row.where}: span1_index is {shown(noun)}; expected a word's index.")
    count = len(pronoun.split())
    found = " ".join(words[place : place + count]) if type(place) is int and place >= 0 else ""
    bare = pronoun.lower().strip(".,;:!?\"'")
    if not bare or bare not in found.lower():
        raise UserError(
            f"{row.where}: {shown(pronoun)} does not stand at word {shown(place)} of the text."
        )
    return " ".join([*words[:place], f"*{found}*", *words[place + count :]])
