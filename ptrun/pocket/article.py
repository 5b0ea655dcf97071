"""Short articles that state given facts, with the spans of the entities they name."""

from dataclasses import dataclass

from ptrun.pocket.draw import Draw
from ptrun.pocket.entity import Entity
from ptrun.pocket.facts import Fact
from ptrun.pocket.lexicon import table
from ptrun.pocket.template import Span, Text

AGAIN = ("full", "short", "pronoun", "pronoun")  # styles of a subject that is named again


@dataclass(frozen=True)
class Article:
    """A text, the facts it states in order, and the spans of each fact's sentence."""

    text: str
    facts: tuple[Fact, ...]
    spans: tuple[tuple[Span, ...], ...]

    def named(self, fact: Fact, role: str) -> Span:
        """Return the span that names the subject (s) or object (o) of a fact.

        If the fact's sentence has only a pronoun, return the first mention in the article.
        """
        end = fact.subject if role == "s" else fact.object
        assert isinstance(end, Entity)
        in_sentence = self.spans[self.facts.index(fact)]
        every = [*in_sentence, *(span for sentence in self.spans for span in sentence)]
        return next(span for span in every if span.named and span.entity == end.id)

    def answer(self, *spans: Span) -> dict[str, list[str] | list[int]]:
        """Return spans as the answers of a question, in the order of the text."""
        order = sorted({(span.start, span.end) for span in spans})
        texts = [self.text[start:end] for start, end in order]
        return {"text": texts, "answer_start": [start for start, _ in order]}


def article(blocks: list[list[Fact]], draw: Draw) -> Article:
    """Write facts block by block; a block names a repeated subject in full only the first time."""
    out, spans = Text(), []
    blocks = [draw.rng.sample(block, len(block)) for block in blocks if block]
    for block in draw.rng.sample(blocks, len(blocks)):
        for last, fact in zip([None, *block], block, strict=False):
            same = last is not None and last.subject is fact.subject
            style = draw.rng.choice(AGAIN) if same else "full"
            before = len(out.spans)
            text = draw.sentence(fact, style)
            out = out.join(text) if out.text else text
            spans.append((fact, tuple(out.spans[before:])))
    facts, of_sentences = zip(*spans, strict=True)
    return Article(out.text, facts, of_sentences)


def question(fact: Fact, wanted: str, draw: Draw) -> str:
    """Return a question for the `subject` or the `object` of a fact."""
    wordings = table("questions")[fact.relation]
    wording: str = draw.rng.choice(wordings[f"{wanted}_held" if draw.held() else wanted])
    other, slot = (fact.object, "{o}") if wanted == "subject" else (fact.subject, "{s}")
    assert isinstance(other, Entity)
    text = wording.replace(slot, other.article + other.name)
    return text[:1].upper() + text[1:]
