"""Rows of tagged words: named entities, semantic roles and parts of speech.

A sentence with names is made of one or two facts, like news. Semantic roles are who did what to
whom, where and when, with one row for each predicate of a sentence; some sentences have two
predicates, which share words and give them different roles.
"""

from dataclasses import dataclass, field
from functools import cache

from ptrun.pocket.tasks import Row
from workshop.pocket.corpus import word
from workshop.pocket.draw import Draw
from workshop.pocket.vocabulary import WORD
from workshop.pocket.world import Fact, Filler, Slot, Text, items, render, table, world

KINDS = {
    "PER": ("person",),
    "LOC": ("town", "region", "river"),
    "ORG": ("firm", "paper", "school", "club"),
    "WORK": ("book", "song", "film", "play", "painting"),
}
TAG_OF_KIND = {kind: tag for tag, kinds in KINDS.items() for kind in kinds}
RESERVED = {"train": 0.0, "validation": 0.6, "test": 0.6}  # share of facts with reserved entities
JOINTS = (", and ", ", while ", "; ", ". ", ". ")
_CAPITALS = frozenset({"Mr", "Mrs", "Miss", "Doctor", "Captain", "Professor", "Judge"})
PATIENTS = {"thing": 50, "person": 20, "work": 15, "give": 15}  # what verbs act on, a share of each
TWO = 0.35  # share of sentences with two predicates


def tagged(text: Text) -> tuple[list[str], list[str]]:
    """Return the words of a text (punctuation apart) and one IOB2 tag for each."""
    named = {s.start: s for s in text.spans if s.named}
    tokens, tags, end, kind = [], [], 0, ""
    for match in WORD.finditer(text.text):
        tokens.append(match[0])
        if span := named.get(match.start()):
            assert span.entity is not None
            end, kind = span.end, TAG_OF_KIND[span.entity.split("-")[0]]
            tags.append(f"B-{kind}")
        else:
            tags.append(f"I-{kind}" if match.start() < end else "O")
    return tokens, tags


def ner(draw: Draw) -> list[Row]:
    """Return one row."""
    tokens, tags = tagged(_text(draw))
    return [{"tokens": tokens, "ner_tags": tags}]


def _text(draw: Draw) -> Text:
    first = _clause(draw)
    if draw.rng.random() < 0.3:
        return _led(first, draw)
    joint = draw.rng.choice(JOINTS)
    second = _clause(draw)
    if joint == ". ":
        return first.join(_led(second, draw))
    return Text(first.text[:-1], first.spans).join(_lowered(second), joint)


def _clause(draw: Draw) -> Text:
    pools = _by_relation(draw.rng.random() < RESERVED[draw.split])
    return draw.sentence(draw.rng.choice(draw.rng.choice(pools)))


@cache
def _by_relation(reserved: bool) -> list[list[Fact]]:
    groups: dict[str, list[Fact]] = {}
    for fact in world().facts:
        if fact.reserved == reserved:
            groups.setdefault(fact.relation, []).append(fact)
    return list(groups.values())


def _led(text: Text, draw: Draw) -> Text:
    """Return the text after an opening such as "Last spring," in six of ten cases."""
    if draw.rng.random() < 0.4:
        return text
    lead = word(Slot("lead", ""), draw.rng)
    return Text(lead[:1].upper() + lead[1:]).join(_lowered(text))


def _lowered(text: Text) -> Text:
    """Return the text with a small first letter, unless it starts with a name or a title."""
    first = text.text.split(" ", 1)[0]
    if any(s.start == 0 and s.named for s in text.spans) or first.rstrip(",") in _CAPITALS:
        return text
    return Text(text.text[:1].lower() + text.text[1:], text.spans)


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


def srl(draw: Draw) -> list[Row]:
    """Return the rows of one sentence."""
    kind = draw.rng.choices(list(PATIENTS), list(PATIENTS.values()))[0]
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


def words(draw: Draw) -> list[Row]:
    """Return one sentence with the part of speech of each word, as Universal Dependencies has it.

    A name has a capital letter and does not begin the sentence, unless it is no other word.
    """
    tokens, tags = srl(draw)[0]["tokens"], []
    for place, token in enumerate(tokens):
        small = _classes().get(token.lower(), "NUM" if token.isdigit() else "")
        if token[0].isupper() and (place or not small):
            small = "PROPN"
        elif token.lower() == "to" and tokens[place + 1] in _bases():
            small = "PART"
        tags.append(small or "NOUN")
    return [{"tokens": tokens, "word_tags": tags}]


@cache
def _classes() -> dict[str, str]:
    verbs = {form: "VERB" for verb in _verbs() for form in verb.split(":")}
    listed = table("srl")["classes"].items()
    return verbs | {word: name for name, words in listed for word in words.split()}


@cache
def _bases() -> set[str]:
    return {verb.split(":")[2] for verb in _verbs()}


def _verbs() -> list[str]:
    return [verb for listed in table("srl")["verbs"].values() for verb in items(listed)]


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
    phrases = table("srl")["phrases"]
    wordings = phrases.get(stem) if stem != "who" or name == "who" else None
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
