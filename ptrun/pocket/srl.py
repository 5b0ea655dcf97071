"""Semantic roles: who did what to whom, where and when; one row for each predicate of a sentence.

Some sentences have two predicates, which share words and give them different roles.
"""

from dataclasses import dataclass, field

from ptrun.pocket.draw import Draw, Row
from ptrun.pocket.lexicon import items, table
from ptrun.pocket.phrase import word
from ptrun.pocket.template import Filler, Slot, render
from ptrun.pocket.vocabulary import WORD

KINDS = {"thing": 50, "person": 20, "work": 15, "give": 15}  # what verbs act on, a share of each
TWO = 0.35  # share of sentences with two predicates


@dataclass
class Sentence:
    """Words under construction and, for each predicate, their tags."""

    tokens: list[str] = field(default_factory=list)
    tags: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))

    def add(self, phrase: str, roles: list[str]) -> None:
        """Append a phrase with its role for each predicate."""
        tokens = WORD.findall(phrase)
        for tags, role in zip(self.tags, roles, strict=True):
            first = tags[-1].replace("B-", "I-") if role == "+" else f"B-{role}"
            later = first.replace("B-", "I-")
            tags += [first, *[later] * (len(tokens) - 1)] if role else ["O"] * len(tokens)
        self.tokens += tokens


def make(draw: Draw) -> list[Row]:
    """Return the rows of one sentence."""
    kind = draw.rng.choices(list(KINDS), list(KINDS.values()))[0]
    name = "give" if kind == "give" else "two" if draw.rng.random() < TWO else "one"
    second = draw.rng.choice(["thing", "person", "work"])
    frame: str = draw.rng.choice(table("srl")["frames"][_list(name, draw)])
    if "that:+" in frame or "done2" in frame:
        second = kind
    verbs = [_verb(kind, draw), _verb(second, draw)]
    sentence = Sentence()
    for part in frame.split():
        phrase, _, roles = part.partition(":")
        sentence.add(_phrase(phrase, (kind, second), verbs, draw), [*roles.split("/"), ""][:2])
    sentence.add(".", ["", ""])
    sentence.tokens[0] = sentence.tokens[0][:1].upper() + sentence.tokens[0][1:]
    return [_row(sentence, i, verbs[i]) for i in range(2 if name == "two" else 1)]


def _row(sentence: Sentence, number: int, verb: str) -> Row:
    tags = sentence.tags[number]
    return {
        "tokens": list(sentence.tokens),
        "predicate_index": tags.index("B-V"),
        "predicate": verb.split(":")[2] + ".01",
        "srl_tags": tags,
    }


def _list(name: str, draw: Draw) -> str:
    return f"{name}_held" if draw.held() else name


def _verb(kind: str, draw: Draw) -> str:
    return draw.rng.choice(items(table("srl")["verbs"][_list(kind, draw)]))


def _phrase(name: str, kinds: tuple[str, str], verbs: list[str], draw: Draw) -> str:
    """Return the words for a part of a frame: a verb form, a phrase, or the part itself."""
    stem, second = name.removesuffix("2"), name.endswith("2")
    if stem in ("past", "done", "base"):
        return verbs[second].split(":")[("past", "done", "base").index(stem)]
    if stem == "what":
        stem = kinds[second].replace("give", "thing")
    wordings = table("srl")["phrases"].get(stem) if stem != "who" or name == "who" else None
    if wordings is None:
        return name
    return render(draw.rng.choice(wordings), lambda slot: _fill(slot, draw), draw.rng, False).text


def _fill(slot: Slot, draw: Draw) -> Filler | str:
    if slot.role == "family":
        return draw.entity("person").short[0]
    if slot.role in ("person", "town", "firm", "book", "film", "song", "painting"):
        entity = draw.entity(slot.role)
        return Filler(entity.name, entity.id, entity.article)
    return word(slot, draw.rng)
