"""A PVP: a pattern with its verbalizer, one entry of a task's `pvps`.

pvps:
  ppt_hybrid: {pattern: "{~sentence} It was {mask}.", words: {negative: [bad], positive: [good]}}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptrun.errors import UserError
from ptrun.prompt.pattern import Pattern, parse
from ptrun.prompt.rendering import SIGNS, Piece
from ptrun.prompt.verbalizer import Rule, Verbalizer

_KEYS = ("pattern", "words", "rule")


@dataclass(frozen=True)
class PVP:
    """A pattern, label words or none, and the rule for words of several tokens.

    Without words the answer comes from the example: a letter, one of its texts, or a fact's object.
    """

    name: str
    pattern: Pattern
    words: Mapping[str, Sequence[str]] | None = None
    rule: Rule = "single"

    def __post_init__(self) -> None:
        if self.words is None:
            self._check_wordless()
            return
        Verbalizer(self.words, self.rule)
        self._check_lengths(self.words)

    def render(self, fields: Mapping[str, Any]) -> list[Piece]:
        """Return the pieces of an example."""
        return self.pattern.render(fields, [words[0] for words in (self.words or {}).values()])

    def verbalizer(self, options: int = 0) -> Verbalizer | None:
        """Return what answers: label words, or the signs that the pattern calls its items by.

        Signs of label words are for the labels in the order of `words`; signs of an example's
        options, at most `options` of them, are for the labels "0", "1", ...; None: the answers are
        texts of the example itself.
        """
        name = "options" if self.words is None else "words"
        signs = SIGNS.get(self.pattern.listing(name) or "")
        if signs is None:
            return None if self.words is None else Verbalizer(self.words, self.rule)
        labels = [str(i) for i in range(options)] if self.words is None else list(self.words)
        return self._signed(labels, signs, glued=not self.pattern.spaced_listing(name))

    def _signed(self, labels: Sequence[str], signs: Sequence[str], *, glued: bool) -> Verbalizer:
        """Return signs as answers; `glued` where the pattern has no space before them."""
        if not 1 <= len(labels) <= len(signs):
            raise UserError(f"pvp {self.name}: {len(labels)} items; 1 to {len(signs)} have signs.")
        answers = {label: (sign,) for label, sign in zip(labels, signs, strict=False)}
        return Verbalizer(answers, "single", glued=glued)

    def _check_wordless(self) -> None:
        if self.pattern.listing("words"):
            raise UserError(
                f"pvp {self.name}: the pattern writes label words out, and there are none; "
                "add words: {label: [word]}."
            )

    def _check_lengths(self, words: Mapping[str, Sequence[str]]) -> None:
        listed = self.pattern.listing("words")
        if listed and any(len(own) > 1 for own in words.values()):
            raise UserError(
                f"pvp {self.name}: the pattern writes one word a label out; give each label one."
            )
        if self.rule == "mean" and not self.pattern.many_masks:
            raise UserError(f"pvp {self.name}: rule mean needs {{masks}} in the pattern.")


def read_pvp(name: str, node: Any, labels: Sequence[str] = ()) -> PVP:
    """Return the PVP of a YAML node; with `labels`, its words must be for exactly these.

    Raises:
        UserError: a key is unknown or missing, or a part is refused; the message names the PVP.
    """
    if not isinstance(node, Mapping) or "pattern" not in node or set(node) - set(_KEYS):
        found = sorted(map(str, node)) if isinstance(node, Mapping) else repr(node)
        raise UserError(f"pvp {name}: {found}; expected pattern, and words and rule if need be.")
    words = node.get("words")
    try:
        pvp = PVP(name, parse(node["pattern"]), words, node.get("rule", "single"))
        if words is not None and labels:
            Verbalizer(words, pvp.rule).check(labels)
    except UserError as error:
        prefix = f"pvp {name}: "
        raise UserError(prefix + str(error).removeprefix(prefix)) from error
    return pvp


def check_pvps(node: Any, labels: Sequence[str], fields: Mapping[str, Any], where: str) -> None:
    """Refuse PVPs that are not for these labels, or write what an example's fields do not have.

    Raises:
        UserError: one does not fit; the message begins with `where` it was written.
    """
    try:
        for pvp in read_pvps(node, labels).values():
            pvp.render(fields)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def read_pvps(node: Any, labels: Sequence[str] = ()) -> dict[str, PVP]:
    """Return a task's PVPs by name.

    Raises:
        UserError: it is no mapping, or one is refused.
    """
    if not isinstance(node, Mapping):
        raise UserError(f"pvps is {node!r}; expected name: {{pattern: ..., words: ...}}.")
    return {str(name): read_pvp(str(name), own, labels) for name, own in node.items()}
