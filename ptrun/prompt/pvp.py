"""A PVP: a pattern with its verbalizer, one entry of a task's `pvps`.

pvps:
  ppt_hybrid: {pattern: "{~sentence} It was {mask}.", words: {negative: [bad], positive: [good]}}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from ptrun.errors import UserError
from ptrun.prompt.pattern import Pattern, parse
from ptrun.prompt.rendering import SIGNS, Piece
from ptrun.prompt.truncation import Shorten
from ptrun.prompt.verbalizer import Rule, Verbalizer

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
            raise UserError(
                f"pvp {self.name}: shorten is {self.shorten!r}; "
                f"use one of {', '.join(get_args(Shorten))}."
            )
        listed = self.pattern.listing("words")
        if self.words is not None:
            Verbalizer(self.words, self.rule)
        elif listed:
            raise UserError(
                f"pvp {self.name}: the pattern writes label words out, and there are none; "
                "add words: {label: [word]}."
            )
        else:
            return
        if listed and any(len(words) > 1 for words in self.words.values()):
            raise UserError(
                f"pvp {self.name}: the pattern writes out one word for each label; "
                "give each label one."
            )
        if self.rule == "mean" and not self.pattern.many_masks:
            raise UserError(f"pvp {self.name}: rule mean needs {{masks}} in the pattern.")

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
        return Verbalizer(words, "single", glued=not self.pattern.spaced_listing(name))


def read_pvp(name: str, node: Any, labels: Sequence[str] = ()) -> PVP:
    """Return the PVP of a YAML node; with `labels`, its words must be for exactly these.

    Raises:
        UserError: a key is unknown or missing, or a part is invalid; the message names the PVP.
    """
    if not isinstance(node, Mapping) or "pattern" not in node or set(node) - set(_KEYS):
        found = sorted(map(str, node)) if isinstance(node, Mapping) else repr(node)
        raise UserError(f"pvp {name}: {found}; expected pattern, and words, rule and shorten.")
    words = node.get("words")
    try:
        rules = node.get("rule", "single"), node.get("shorten", "longest")
        pvp = PVP(name, parse(node["pattern"]), words, *rules)
        if words is not None and labels:
            Verbalizer(words, pvp.rule).check(labels)
    except UserError as error:
        prefix = f"pvp {name}: "
        raise UserError(prefix + str(error).removeprefix(prefix)) from error
    return pvp


def check_pvps(node: Any, labels: Sequence[str], fields: Mapping[str, Any], where: str) -> None:
    """Refuse PVPs that are not for these labels, or show fields that an example does not have.

    Raises:
        UserError: one is invalid; the message begins with `where`, the place of the PVPs.
    """
    try:
        for pvp in read_pvps(node, labels).values():
            pvp.render(fields)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def read_pvps(node: Any, labels: Sequence[str] = ()) -> dict[str, PVP]:
    """Return a task's PVPs by name.

    Raises:
        UserError: it is no mapping, or one is invalid.
    """
    if not isinstance(node, Mapping):
        raise UserError(f"pvps is {node!r}; expected name: {{pattern: ..., words: ...}}.")
    return {str(name): read_pvp(str(name), own, labels) for name, own in node.items()}
