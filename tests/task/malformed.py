"""Files with something wrong in them, generated: for each kind of task, and for own tables."""

from dataclasses import dataclass
from importlib import import_module


def answers(texts, *starts):
    return {"answers": {"text": texts, "answer_start": [*starts]}}


SPAN = {"question": "who?", "context": "Ann met Bob.", **answers(["Bob"], 8)}
FACT = {"predicate_id": "P1", "template": "[X] is in [Y] .", "sub_label": "Oslo"}
FACT["obj_label"] = "Norway"
BINARY = {"label": "label", "labels": {"no": 0, "yes": 1}}


@dataclass(frozen=True)
class Kind:
    """A kind of task: its class, what YAML gives it, a right row, and rows that are not."""

    path: str
    keys: dict
    row: dict
    wrong: list

    def make(self, folder):
        module, _, name = f"ptrun.task.{self.path}".rpartition(".")
        splits = {"train": "train", "dev": None, "test": None}
        common = {"name": "t", "version": 1, "source": {"hub": "none"}, "splits": splits}
        return getattr(import_module(module), name)(str(folder), **common, **self.keys)


KINDS = {
    "classification": Kind(
        "classification.Classification",
        {"fields": ["a", "b"], **BINARY},
        {"a": "one", "b": "two", "label": 1},
        [{"label": 2}, {"label": "maybe"}, {"label": 1.5}],
    ),
    "regression": Kind(
        "classification.Regression",
        {"fields": ["a"], "label": "score", "low": 0, "high": 5},
        {"a": "one", "score": 2.5},
        [{"score": -1}, {"score": 5.01}, {"score": "3"}, {"score": True}],
    ),
    "choice": Kind(
        "choice.Choice",
        {"fields": ["a"], "options": "options", "answer": "answer", "answer_is": "letter"},
        {"a": "one", "options": ["x", "y", "z"], "answer": "B"},
        [{"answer": "D"}, {"answer": "AB"}, {"answer": "b"}, {"options": ["x"]}],
    ),
    "tagging": Kind(
        "tagging.Tagging",
        {"tokens": "words", "tags": "tags", "predicate": "verb"},
        {"words": ["Ann", "ran"], "tags": ["B-PER", "O"], "verb": 1},
        [{"verb": 2}, {"verb": -1}, {"tags": ["B-PER"]}, {"tags": ["X", "O"]}, {"words": []}],
    ),
    "tags": Kind(
        *("tagging.Tags", {"tokens": "words", "tags": "tags", "labels": ["DET", "NOUN"]}),
        {"words": ["The", "cat"], "tags": ["DET", "NOUN"]},
        [{"tags": ["DET"]}, {"tags": ["DET", "X"]}, {"tags": ["DET", None]}, {"words": []}],
    ),
    "extraction": Kind(
        *("extraction.Extraction", {}, SPAN),
        [answers(["Bob"], start) for start in (7, -1, 10**9, 8.0, "8")],
    ),
    "multispan": Kind(
        *("extraction.MultiSpan", {}, SPAN),
        [answers([]), answers(["Bob"], 99), answers(["Ann", "Bob"], 0)],
    ),
    "grouped": Kind(
        "classification.Grouped",
        {"fields": ["a"], "group": ["q"], "positive": "yes", **BINARY},
        {"a": "one", "q": "which?", "label": 0},
        [{"label": 3}, {"q": 4}],
    ),
    "entity_choice": Kind(
        "choice.EntityChoice",
        {},
        {"passage": "Ann ran.", "query": "@placeholder ran", "entities": ["Ann"]}
        | {"answers": ["Ann"]},
        [{"query": "no gap"}, {"entities": []}, {"answers": [1]}],
    ),
    "span_check": Kind(
        "classification.SpanCheck",
        {"fields": ["text"], "extra": ["span1_text", "span2_text"], **BINARY},
        {"text": "Ann ran as she could", "span1_text": "Ann", "span1_index": 0}
        | {"span2_text": "she", "span2_index": 3, "label": 1},
        [{"span2_index": 1}, {"span2_index": 10**30}, {"span2_text": "."}, {"span2_text": "he is"}],
    ),
    "facts": Kind("facts.Facts", {}, FACT, [{"template": "[X] is"}, {"template": "is [Y]"}]),
}
