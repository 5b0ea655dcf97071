"""Patterns, and PVPs: a pattern with its verbalizer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from ptrun.errors import UserError
from ptrun.pattern.encoding import Shorten
from ptrun.pattern.rendering import SIGNS, Line, Piece
from ptrun.pattern.slots import GAPS, LISTS, Border, Field, Group, Hole, LiteralText, Part, slot_of
from ptrun.pattern.verbalizer import Rule, Verbalizer

# Patterns: one line of text with slots that turns an example into the backbone's input.
#
#     "{~premise} Question: {hypothesis|strip_end}? {soft} Answer: {mask}."
#
# | slot                 | becomes                                                                 |
# |----------------------|-------------------------------------------------------------------------|
# | `{field}`            | a text of the example                                                   |
# | `{~field}`           | the same; it is shortened first if a row is too long                    |
# | `{field|strip_end}`  | the text, filtered: see `ptrun.pattern.slots`                          |
# | `{mask}`             | where one token of the answer is read                                   |
# | `{masks}`            | as many masks as the longest candidate has tokens                       |
# | `{soft}`, `{soft:3}` | learned vectors                                                         |
# | `{options|letters}`  | a list written out: `A. one.B. two.`; a space before the slot comes     |
# |                      | before each letter (PPT's own code has none)                            |
# | `{options|numerals}` | the same in Chinese, with a full-width comma and semicolon              |
# | `{options|commas}`   | `one, two`;  `{options|or}`: `one or two`;  `"{options|or_quoted}"`:    |
# |                      | `"one" or "two"`;  `" {options|or_quotes} "`: `" one " or " two "` (PET)|
# | `{words|letters}`    | the label words written out, in any of these ways                       |
# | `{query|gap}`        | a text with `@placeholder` in the place of the answer (ReCoRD)          |
# | `{template|fact}`    | a text with `[X]`, the field `sub_label`, and `[Y]`, the mask (LAMA);   |
# |                      | `fact_start` ends at `[Y]`                                              |
# | `[[ Hint: {hint}]]`  | text and fields that are left out if all these fields are empty         |
# | `||`                 | the border between two segments                                         |
#
# All other text is literal. A space belongs to what follows it, since tokens may differ at the
# start of a word (`ptrun.pattern.spelling`). Spaces beside `||` are dropped.

_TOKEN = re.compile(r"\{([^{}]*)\}|[ \t]*\|\|[ \t]*|\[\[(.*?)\]\]|[{}]|\[\[|\]\]", re.DOTALL)


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern; made by `parse`."""

    text: str
    parts: tuple[Part, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of an example that it shows, each once, in order."""
        return tuple(dict.fromkeys(name for slot in self.slots for name in slot.names))

    @property
    def optional(self) -> set[str]:
        """The fields that stand in groups alone: their texts may be empty."""
        outside = {n for part in self.parts if isinstance(part, Field) for n in part.names}
        return {*self.fields} - outside

    @property
    def masks(self) -> int:
        """The number of slots for an answer; `{masks}` counts as one."""
        holes = [part for part in self.parts if isinstance(part, Hole) and part.kind != "soft"]
        return len(holes) + sum(slot.ending in GAPS for slot in self.slots)

    @property
    def softs(self) -> int:
        """The number of learned vectors."""
        return sum(p.count for p in self.parts if isinstance(p, Hole) and p.kind == "soft")

    @property
    def many_masks(self) -> bool:
        """Whether an answer may have several tokens: `{masks}`, or a gap in a text."""
        several = any(isinstance(part, Hole) and part.kind == "masks" for part in self.parts)
        return several or any(slot.ending == "gap" for slot in self.slots)

    def listing(self, name: str) -> str | None:
        """Return the filter that writes out the list of this name, or None."""
        endings = (slot.ending for slot in self.slots if slot.name == name)
        return next((ending for ending in endings if ending in LISTS), None)

    def filtered(self, name: str, text: str) -> str:
        """Return a text filtered by the first slot of this name; unchanged if there is none."""
        slot = next((slot for slot in self.slots if slot.name == name), None)
        return slot.filtered(text) if slot else text

    def render(self, fields: Mapping[str, Any], words: Sequence[str] = ()) -> list[Piece]:
        """Return the pieces of an example, with label words where the pattern lists them."""
        line = Line(fields, words, f"pattern {self.text!r}")
        for part in self.parts:
            line.add(part)
        return line.pieces

    @property
    def slots(self) -> list[Field]:
        """The slots of fields, those of groups too."""
        groups = (p.fields if isinstance(p, Group) else [p] for p in self.parts)
        return [part for group in groups for part in group if isinstance(part, Field)]


def parse(text: str) -> Pattern:
    """Read a pattern; a refusal names what is wrong in it, and where."""
    if not isinstance(text, str) or not text.strip():
        raise UserError(
            f'pattern {text!r} has no text; write one such as "{{~sentence}} {{mask}}".'
        )
    parts: list[Part] = []
    at = 0
    for match in _TOKEN.finditer(text):
        parts += [LiteralText(text[at : match.start()])] if match.start() > at else []
        where, at = f"pattern {text!r}, character {match.start() + 1}", match.end()
        token, slot, group = match.group(0, 1, 2)
        if token in ("{", "}", "[[", "]]"):
            raise UserError(f"{where}: {token} has no partner; write {{field}} or [[ {{field}}]].")
        if group is not None:
            inside = parse(group).parts
            texts = [p for p in inside if isinstance(p, Field) and p.ending is None]
            if len(texts) < sum(not isinstance(p, LiteralText) for p in inside):
                raise UserError(f"{where}: a group holds text and fields, as [[ Hint: {{hint}}]].")
            parts.append(Group(inside))
        else:
            parts.append(Border() if token.strip() == "||" else slot_of(slot, where))
    parts += [LiteralText(text[at:])] if at < len(text) else []
    if not Pattern(text, tuple(parts)).fields:
        raise UserError(f"pattern {text!r} has no field; write a slot such as {{~sentence}}.")
    borders = [place for place, part in enumerate(parts) if isinstance(part, Border)]
    if len(borders) > 1:
        raise UserError(f"pattern {text!r} has {len(borders)} borders ||; one or none is allowed.")
    sides = [parts[: borders[0]], parts[borders[0] + 1 :]] if borders else [parts]
    blank = [all(isinstance(p, LiteralText) and not p.text.strip() for p in side) for side in sides]
    if any(blank):
        raise UserError(f"pattern {text!r}: one side of || is empty; write text there or drop ||.")
    return Pattern(text, tuple(parts))


_KEYS = ("pattern", "words", "rule", "shorten")


@dataclass(frozen=True)
class PVP:
    """A pattern, optional label words, and the rules for words of several tokens and long rows.

    Without words the answer comes from the example: a letter, one of its texts, or a fact's object.
    """

    name: str
    pattern: Pattern
    words: Mapping[str, Sequence[str]] | None = None
    rule: Rule = "single"
    shorten: Shorten = "longest"

    def __post_init__(self) -> None:
        if self.shorten not in get_args(Shorten):
            allowed = ", ".join(get_args(Shorten))
            raise UserError(f"shorten is {self.shorten!r}; use one of {allowed}.")
        listed = self.pattern.listing("words")
        if self.words is None:
            if listed:
                raise UserError("the pattern writes label words out; add words: {label: [word]}.")
            return
        Verbalizer(self.words, self.rule)
        if listed and any(len(words) > 1 for words in self.words.values()):
            raise UserError("the pattern writes one word for each label; give each label one.")
        if self.rule == "mean" and not self.pattern.many_masks:
            raise UserError("rule mean needs {masks} in the pattern.")

    def render(self, fields: Mapping[str, Any]) -> list[Piece]:
        """Return the pieces of an example."""
        return self.pattern.render(fields, [words[0] for words in (self.words or {}).values()])

    def verbalizer(self, options: int = 0) -> Verbalizer | None:
        """Return the label words, or the signs that the pattern writes before the items of a list.

        Signs of label words have the labels in the order of `words`. Signs of an example's options,
        at most `options`, have the labels "0", "1", and so on. None means that the answers are
        texts of the example.
        """
        name = "options" if self.words is None else "words"
        signs = SIGNS.get(self.pattern.listing(name) or "")
        if signs is None:
            return None if self.words is None else Verbalizer(self.words, self.rule)
        labels = [str(i) for i in range(options)] if self.words is None else list(self.words)
        if not 1 <= len(labels) <= len(signs):
            raise UserError(f"pvp {self.name}: {len(labels)} items; 1 to {len(signs)} have signs.")
        words = {label: (sign,) for label, sign in zip(labels, signs, strict=False)}
        pairs = zip([Border(), *self.pattern.parts], self.pattern.parts, strict=False)
        before = next(  # of the list: a space there is one before each sign
            part for part, slot in pairs
            if isinstance(slot, Field) and slot.name == name and slot.ending in LISTS
        )  # fmt: skip
        spaced = isinstance(before, LiteralText) and before.text[-1] == " "
        return Verbalizer(words, "single", glued=not (spaced or isinstance(before, Border)))


def read_pvp(name: str, node: Any, labels: Sequence[str] = ()) -> PVP:
    """Return the PVP of a YAML node, whose words must be for exactly the `labels`, if any."""
    if not isinstance(node, Mapping) or "pattern" not in node or set(node) - set(_KEYS):
        keys = sorted(map(str, node)) if isinstance(node, Mapping) else repr(node)
        raise UserError(f"pvp {name}: {keys}; expected pattern, and words, rule and shorten.")
    words = node.get("words")
    try:
        rules = node.get("rule", "single"), node.get("shorten", "longest")
        pvp = PVP(name, parse(node["pattern"]), words, *rules)
        if words is not None and labels:
            Verbalizer(words, pvp.rule).check(labels)
    except UserError as error:
        raise UserError(f"pvp {name}: {error}") from error
    return pvp


def optional_fields(node: Any, where: str) -> set[str]:
    """Return the fields that may be empty in PVPs; `where` is their place."""
    try:
        return {field for pvp in read_pvps(node).values() for field in pvp.pattern.optional}
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def check_pvps(node: Any, labels: Sequence[str], fields: Mapping[str, Any], where: str) -> None:
    """Refuse PVPs of other labels, or of fields that an example lacks; `where` is their place."""
    try:
        for pvp in read_pvps(node, labels).values():
            pvp.render(fields)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def read_pvps(node: Any, labels: Sequence[str] = ()) -> dict[str, PVP]:
    """Return a task's PVPs by name."""
    if not isinstance(node, Mapping):
        raise UserError(f"pvps is {node!r}; expected name: {{pattern: ..., words: ...}}.")
    return {str(name): read_pvp(str(name), pvp, labels) for name, pvp in node.items()}
