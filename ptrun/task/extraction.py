"""Extractive question answering: one span of a context, or none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from ptrun.errors import UserError, shown
from ptrun.metrics import by_characters, drop_scores, squad_scores, squad_v2_scores
from ptrun.task.dataset import Common, Dataset, Scores
from ptrun.task.source import Row
from ptrun.task.text_metrics import tokens_of
from ptrun.types import Example, Prediction


@dataclass(frozen=True)
class Answer:
    """A span of the context: its text, and its first character, from 0."""

    text: str
    start: int


class InContext(Dataset):
    """Questions about contexts; the target is the list of all right answers.

    Args beyond those of `Common`:
        question, context, answers: the fields; answers are `{text: [...], answer_start: [...]}`.
    """

    metric = "f1"
    unanswerable = False
    """Whether a question may have no answer."""

    def __init__(
        self,
        *files: str | None,
        question: str = "question",
        context: str = "context",
        answers: str = "answers",
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        self.fields = self.columns = [question, context]
        self.blank, self._answers = [], answers

    def target(self, row: Row, unlabelled: Example) -> list[Answer]:
        """Return the right answers; refuse wrong types, and a text that is not at its offset."""
        raw, context = row.value(self._answers), unlabelled.fields[self.fields[1]]
        parts = raw if isinstance(raw, dict) else {}
        texts: Any = parts.get("text")
        starts: Any = parts.get("answer_start")
        if not _is_list(texts, str) or not _is_list(starts, int) or len(texts) != len(starts):
            expected = "{text: [...], answer_start: [...]} of equal length"
            raise row.wrong(self._answers, expected)
        answers = [Answer(text, start) for text, start in zip(texts, starts, strict=True)]
        for text, start in zip(texts, starts, strict=True):
            if start < 0 or not text or context[start : start + len(text)] != text:
                place = f"{shown(text)} at character {shown(start)}"
                raise UserError(f"{row.where}: the context does not have answer {place}.")
        if not answers and not self.unanswerable:
            raise UserError(
                f"{row.where}: no answer, but task {self.name} needs one for every question."
            )
        return answers


class Extraction(InContext):
    """Questions with one answer each; any of the listed answers is right.

    A prediction is a text, empty for "no answer".

    Args beyond those of `InContext`:
        unanswerable: whether a question may have no answer (SQuAD 2.0).
        answers_by: what the scores compare: words between spaces, as SQuAD's scripts do, or
            characters of scripts without spaces, as CMRC 2018, DRCD and MLQA do; auto: by the
            letters of the answers of a part.
    """

    kind = "extraction"
    answer = "span"

    def __init__(
        self,
        *files: str | None,
        question: str = "question",
        context: str = "context",
        answers: str = "answers",
        unanswerable: bool = False,
        answers_by: Literal["auto", "words", "characters"] = "auto",
        **common: Unpack[Common],
    ):
        super().__init__(*files, question=question, context=context, answers=answers, **common)
        self.unanswerable, self.answers_by = unanswerable, answers_by

    def signatures(self, examples: Sequence[Example]) -> dict[str, str]:
        """Return what the scores of examples compare: words as SQuAD does, or characters."""
        golds = [[answer.text for answer in e.target] for e in examples]
        is_divided = tokens_of(golds, self.answers_by)[0] == "characters"
        return {"f1": "SQuAD, characters"} if is_divided else {}

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return exact match and token F1, 0-100, as SQuAD's official scripts do."""
        read = by_characters if self.signatures(examples) else str
        guesses = [read(p.value) for p in predictions]
        golds = [[read(answer.text) for answer in e.target] for e in examples]
        return (squad_v2_scores if self.unanswerable else squad_scores)(guesses, golds)


def _is_list(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


# Multi-span question answering: all the spans that answer a question (QUOREF).


class MultiSpan(InContext):
    """Questions with several answers each; a prediction is the list of all answer texts."""

    kind = "multispan"
    answer = "spans"

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return exact match and F1 over sets of spans, 0-100, by DROP's rules.

        A prediction may also hold answers by other decoding rules. Their scores have the rule's
        name as a suffix.
        """
        golds = [[answer.text for answer in e.target] for e in examples]
        scores = drop_scores([p.value for p in predictions], golds)
        for rule in predictions[0].also if predictions else ():
            other = drop_scores([p.also[rule] for p in predictions], golds)
            scores |= {f"{name}_{rule}": value for name, value in other.items()}
        return scores
