"""Documents with questions about them: a folder each, for `readout.document` and `task=csv`.

`DIR/<kind>/0001/document.txt` is a document, `questions.jsonl` beside it has its questions: `id`,
`question`, `answer` (a list of references) and, of LongHealth, `options`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.importing.data import MadeFile, Record, each, inner
from ptrun.task.lines import json_file
from ptrun.task.source import Row

Document = tuple[str, Sequence[Record]]
"""The text of a document, and its questions."""


def documents(kind: str, read: Callable[[Row], Iterator[Document]], source: Path) -> list[MadeFile]:
    """Return the files of the documents that `read` yields."""
    texts = list(read(Row(str(source), json_file(source))))
    if not texts:
        raise UserError(f"{source}: no documents in it.")
    files = []
    for number, (text, questions) in enumerate(texts, start=1):
        folder = f"{kind}/{number:04}"
        files.append(MadeFile(folder, "document.txt", [source], [text + "\n"]))
        files.append(MadeFile(folder, "questions.jsonl", [source], questions))
    return files


def _longhealth(patients: Row) -> Iterator[Document]:
    """Yield the patients of LongHealth (Adams et al. 2024): their letters, and 20 questions."""
    for name in patients.data:
        patient = inner(patients, name)
        letters = inner(patient, "texts")
        by_number = sorted(
            letters.data, key=lambda key: int("".join(filter(str.isdigit, key)) or 0)
        )
        text = "\n\n".join(letters.text(key) for key in by_number)
        yield text, [_choice(question) for question in each(patient, "questions")]


def _choice(row: Row) -> Record:
    options = [row.text(f"answer_{letter}") for letter in "abcde"]
    correct = row.text("correct")
    if correct not in options:
        raise row.wrong("correct", "one of the answers")
    listed = "\n".join(options)
    return {
        "id": str(row.value("No")),
        "question": f"{row.text('question')}\n{listed}",
        "answer": [correct],
        "options": options,
    }


def _qasper(papers: Row) -> Iterator[Document]:
    """Yield the papers of QASPER (Dasigi et al. 2021) that have an answered question."""
    for name in papers.data:
        paper = inner(papers, name)
        parts = [paper.text("title"), paper.text("abstract")]
        for section in each(paper, "full_text"):
            paragraphs = section.value("paragraphs")
            if not isinstance(paragraphs, list) or not all(isinstance(p, str) for p in paragraphs):
                raise section.wrong("paragraphs", "texts")
            parts += [str(section.data.get("section_name") or ""), *paragraphs]
        questions = []
        for row in each(paper, "qas"):
            answers = [_reference(inner(answer, "answer").data) for answer in each(row, "answers")]
            question = {"id": str(row.value("question_id")), "question": row.text("question")}
            if different := list(dict.fromkeys(filter(None, answers))):
                questions.append({**question, "answer": different})
        if questions:
            yield "\n\n".join(part for part in parts if part.strip()), questions


def _reference(answer: Mapping[str, Any]) -> str:
    """Return an answer as QASPER's scorer compares it."""
    if answer.get("unanswerable"):
        return "Unanswerable"
    if isinstance(answer.get("yes_no"), bool):
        return "Yes" if answer["yes_no"] else "No"
    spans = answer.get("extractive_spans") or []
    return ", ".join(map(str, spans)) or str(answer.get("free_form_answer") or "")


def _squad_articles(file: Row) -> Iterator[Document]:
    """Yield the articles of SQuAD, with the questions that have an answer."""
    for article in each(file, "data"):
        paragraphs = each(article, "paragraphs")
        questions = [
            {
                "id": str(question.value("id")),
                "question": question.text("question"),
                "answer": list(dict.fromkeys(a.text("text") for a in each(question, "answers"))),
            }
            for paragraph in paragraphs
            for question in each(paragraph, "qas")
            if not question.data.get("is_impossible")
        ]
        if questions:
            yield "\n\n".join(paragraph.text("context") for paragraph in paragraphs), questions


longhealth = partial(documents, "longhealth", _longhealth)
qasper = partial(documents, "qasper", _qasper)
squad_articles = partial(documents, "squad_articles", _squad_articles)
