"""Patterns: one line of text with slots that says how an example is put to a backbone.

    "{~premise} Question: {hypothesis|strip_end}? {soft} Answer: {mask}."

| slot                   | becomes                                                                |
|------------------------|------------------------------------------------------------------------|
| `{field}`              | a text of the example                                                  |
| `{~field}`             | the same; the first to lose tokens where a row is too long             |
| `{field|strip_end}`    | the text, changed: see `ptrun.prompt.filters`                          |
| `{mask}`               | where one token of the answer is read                                  |
| `{masks}`              | as many masks as the longest candidate has tokens                      |
| `{soft}`, `{soft:3}`   | learned vectors                                                        |
| `{options|letters}`    | a list written out: `A. one.B. two.`; a space before the slot comes    |
|                        | before each letter (PPT's own code has none)                           |
| `{options|numerals}`   | the same in Chinese, with a full-width comma and semicolon             |
| `{options|commas}`     | `one, two`;  `{options|or}`: `one or two`;  `"{options|or_quoted}"`:   |
|                        | `"one" or "two"`                                                       |
| `{words|letters}`      | the label words written out, in any of these ways                      |
| `{query|gap}`          | a text whose `@placeholder` is the place of the answer (ReCoRD)        |
| `{template|fact}`      | a text with `[X]`, the field `sub_label`, and `[Y]`, the mask (LAMA);  |
|                        | `fact_start` ends at `[Y]`                                             |
| `||`                   | the border between two segments                                        |

Everything else is literal text. A space belongs to what comes after it: whether a token differs at
the start of a word is the tokenizer's to say (`ptrun.prompt.spelling`). Spaces beside `||` do not
count.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptrun.errors import UserError
from ptrun.prompt.filters import FILTERS
from ptrun.prompt.rendering import Piece, render
from ptrun.prompt.slots import GAPS, LISTS, Border, Field, Hole, Part, Written, read_slot

_TOKEN = re.compile(r"\{([^{}]*)\}|[ \t]*\|\|[ \t]*|[{}]")


@dataclass(frozen=True)
class Pattern:
    """A pattern that was read; made by `parse`."""

    text: str
    parts: tuple[Part, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of an example it writes, each once, in order."""
        names = [name for part in self._slots() for name in part.names]
        return tuple(dict.fromkeys(names))

    @property
    def masks(self) -> int:
        """How many places are for an answer; `{masks}` is one of them."""
        holes = [part for part in self.parts if isinstance(part, Hole) and part.kind != "soft"]
        return len(holes) + sum(slot.ending in GAPS for slot in self._slots())

    @property
    def softs(self) -> int:
        """How many learned vectors it has."""
        return sum(p.count for p in self.parts if isinstance(p, Hole) and p.kind == "soft")

    @property
    def many_masks(self) -> bool:
        """Whether an answer may have several tokens: `{masks}`, or a gap in a text."""
        several = any(isinstance(part, Hole) and part.kind == "masks" for part in self.parts)
        return several or any(slot.ending == "gap" for slot in self._slots())

    def listing(self, name: str) -> str | None:
        """Return the filter that writes a list of this name out, or None."""
        found = [slot.ending for slot in self._slots() if slot.name == name]
        return next((ending for ending in found if ending in LISTS), None)

    def filtered(self, name: str, text: str) -> str:
        """Return a text as the first slot of this name writes it; unchanged if there is none."""
        slot = next((slot for slot in self._slots() if slot.name == name), None)
        for key in slot.filters if slot else ():
            text = FILTERS[key](text)
        return text

    def spaced_listing(self, name: str) -> bool:
        """Return whether a word begins before the list of this name: a space, or its segment."""
        before: Part = Border()
        for part in self.parts:
            if isinstance(part, Field) and part.name == name and part.ending in LISTS:
                break
            before = part
        return isinstance(before, Border) or (
            isinstance(before, Written) and before.text[-1] == " "
        )

    def render(self, fields: Mapping[str, Any], words: Sequence[str] = ()) -> list[Piece]:
        """Return the pieces of an example, with label words where the pattern lists them.

        Raises:
            UserError: a field is missing, or is a list where a text is wanted, or the reverse.
        """
        return render(self.parts, fields, words, f"pattern {self.text!r}")

    def _slots(self) -> list[Field]:
        return [part for part in self.parts if isinstance(part, Field)]


def parse(text: str) -> Pattern:
    """Read a pattern.

    Raises:
        UserError: it is no text, shows nothing of an example, a brace does not close, a filter or
            slot is unknown, or a border has no text on one side or is the second one.
    """
    if not isinstance(text, str) or not text.strip():
        raise UserError(
            f'pattern {text!r} has no text; write one such as "{{~sentence}} {{mask}}".'
        )
    parts: list[Part] = []
    at = 0
    for match in _TOKEN.finditer(text):
        parts += [Written(text[at : match.start()])] if match.start() > at else []
        parts.append(_part(match, f"pattern {text!r}, character {match.start() + 1}"))
        at = match.end()
    parts += [Written(text[at:])] if at < len(text) else []
    _check(text, parts)
    return Pattern(text, tuple(parts))


def _part(match: re.Match[str], where: str) -> Part:
    if match.group().strip() == "||":
        return Border()
    if match.group() in ("{", "}"):
        raise UserError(f"{where}: {match.group()} has no partner; write slots as {{field}}.")
    return read_slot(match.group(1), where)


def _check(text: str, parts: list[Part]) -> None:
    if not any(isinstance(part, Field) and part.names for part in parts):
        raise UserError(f"pattern {text!r} has no field; write a slot such as {{~sentence}}.")
    borders = [place for place, part in enumerate(parts) if isinstance(part, Border)]
    if len(borders) > 1:
        raise UserError(f"pattern {text!r} has {len(borders)} borders ||; one or none is allowed.")
    sides = [parts[: borders[0]], parts[borders[0] + 1 :]] if borders else [parts]
    if not all(any(_shows(part) for part in side) for side in sides):
        raise UserError(f"pattern {text!r}: one side of || is empty; write text there or drop ||.")


def _shows(part: Part) -> bool:
    return not isinstance(part, Written) or bool(part.text.strip())
