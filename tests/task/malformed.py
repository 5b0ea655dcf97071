"""Files with something wrong in them, generated: for each kind of task, and for own tables."""

import copy
import gzip
import json
import random
from dataclasses import dataclass
from importlib import import_module

ONE, TWO = "label", "labels"


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

TYPES = [None, 7, 10**400, [], {}, "", "x" * 5000, [["x"]], {"x": {"y": [None]}}]
"""What is put in place of a field, in turn."""


def rows_of(kind, rng):
    """Yield second lines that are JSON: fields gone, wrong types and the kind's own wrongs."""
    for change in kind.wrong:
        yield f"wrong {change}"[:60], {**kind.row, **change}
    for field in kind.row:
        gone = copy.deepcopy(kind.row)
        del gone[field]
        yield f"without {field}", gone
        for value in rng.sample(TYPES, 2):
            yield f"{field} {str(value)[:20]}", {**kind.row, field: value}
    yield "id list", {**kind.row, "id": [1]}


def lines_of(row, rng):
    """Yield second lines that are not a plain JSON object, as bytes."""
    good = json.dumps(row)
    start = good[:-1]
    yield "cut", good[: rng.randrange(2, len(good) - 1)].encode()
    yield "array", b"[1, 2]"
    yield "scalar", rng.choice([b"null", b'"x"', b"12", b"true"])
    yield "two objects", (good + good).encode()
    yield "CP1252", f'{start}, "note": "caf\u00e9"}}'.encode("cp1252")
    yield "UTF-16", good.encode("utf-16")
    yield "NUL byte", (start + "\0}").encode()
    yield "10 MB of text", f'{start}, "note": "{"x " * 5_000_000}"}}'.encode()
    yield "10 MB of brackets", b"[" * 10_000_000
    yield "10 MB key", f'{{"{"k" * 10_000_000}": 1}}'.encode()
    yield "deep", f'{start}, "note": {"[" * 200}{"]" * 200}}}'.encode()
    yield "deeper", f'{start}, "note": {"[" * 9000}{"]" * 9000}}}'.encode()
    yield "no number", f'{start}, "note": {rng.choice(["NaN", "Infinity", "-Infinity"])}}}'.encode()
    yield "too large", f'{start}, "note": 1e999}}'.encode()
    yield "huge integer", f'{start}, "note": {"9" * 5000}}}'.encode()
    yield "surrogate", (start + ', "note": "\\ud83d"}').encode()
    yield "key twice", f'{start}, "note": 1, "note": 2}}'.encode()
    yield "single quotes", str(row).encode()
    yield "CRLF", good.encode() + b"\r"
    yield "blank", b" \t"


def files_of(content, rng):
    """Yield whole files that are wrong as such, with their suffix after `.jsonl`."""
    packed = gzip.compress(content, mtime=0)
    spoilt = bytearray(packed)
    spoilt[len(spoilt) // 2] ^= 0xFF
    yield "empty", b"", ""
    yield "blank lines", b"\n\r\n\n", ""
    yield "BOM", b"\xef\xbb\xbf" + content, ""
    yield "gzip", packed, ".gz"
    yield "truncated gzip", packed[: rng.randrange(4, len(packed) - 1)], ".gz"
    yield "spoilt gzip", bytes(spoilt), ".gz"
    yield "no gzip", content, ".gz"
    yield "gzip unannounced", packed, ""


def spoilt(content, rng):
    """Return content with a few bytes changed, put in or taken out at random."""
    data = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(data))
        way = rng.randrange(3)
        if way == 0:
            data[place] = rng.randrange(256)
        elif way == 1:
            data[place:place] = rng.choice([b'"', b"\\", b"{", b"\r", b"\0", b",", b"\xff", b"-"])
        else:
            del data[place : place + rng.randrange(1, 9)]
    return bytes(data)


def generator(seed):
    return random.Random(f"malformed:{seed}")
