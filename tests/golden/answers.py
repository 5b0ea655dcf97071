"""The third part of the golden list: what files and cells of papers are answered.

Tables are those of public reports, with rows of our own, that `tests/task/tables.py` lacks. An
answer is what was read, or a refusal.
"""

import hashlib
import json
from collections import Counter
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from ptrun.errors import UserError

ROWS = [(f"the {w} was {a}", a) for w in ("film", "plot", "cafe") for a in ("good", "bad") * 3]


def csv(separator=",", rows=ROWS, header=("text", "label")):
    return "\n".join(separator.join(map(str, row)) for row in [header, *rows]) + "\n"


def lines(*rows):
    return "\n".join(map(json.dumps, rows)) + "\n"


def labelled(*labels, text="a text of its own"):
    """Return rows of one text each with these labels, in turn."""
    return [(f"{text} {i}", labels[i % len(labels)]) for i in range(6 * len(labels))]


def objects(labels, **more):
    return [{"text": text, "label": label, **more} for text, label in labelled(*labels)]


def parquet(columns):
    buffer = BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def replaced(text, places):
    every = text.split("\n")
    for place, line in places.items():
        every[place] = line
    return "\n".join(every)


PAIR = {"text": ["question1", "question2"], "label": "is_duplicate"}
PAIRS = csv("\t", rows=[(f"q {i}", f"r {i}", i % 2) for i in range(12)],
            header=("question1", "question2", "is_duplicate"))  # fmt: skip
TURNS = [{"role": "user", "content": "3 and 4"}, {"role": "assistant", "content": "7"}]
TALK, WRITE = {"messages": "messages"}, {"text": "prompt", "answer": "completion"}

TABLES = {
    "T1 lone quotes": (
        "q.tsv",
        replaced(csv("\t"), {3: '"Funny, he said\tgood', 7: 'a day"\tgood'}),
        {},
    ),
    "T3 quote never closed": ("q.tsv", replaced(csv("\t"), {3: '"Funny\tgood'}), {}),
    "T4 row cut in two": ("q.tsv", replaced(PAIRS, {3: "q", 4: "r\t0"}), PAIR),
    "T6 no header": ("c.tsv", csv("\t").partition("\n")[2], {"text": "sentence"}),
    "T8 float labels, dev": ("f.csv", csv(rows=labelled("1.0", "0.0")), {}),
    "T9 1.0 and 1": ("f.csv", csv(rows=[*labelled("1.0", "0.0"), *labelled("1", "0")]), {}),
    "T11 nan": ("n.csv", csv(rows=labelled("good", "bad", "nan")), {}),
    "T12 no label": ("n.csv", csv(rows=labelled("good", "bad", "-")), {}),
    "T12 no label, skipped": ("n.csv", csv(rows=labelled("good", "bad", "-")), {"skip": ["-"]}),
    "T16 a list of one label": ("a.jsonl", lines(*objects([["a"], ["b"]])), {}),
    "T17 Prodigy's verdicts": (
        "a.jsonl",
        lines(*objects(["a", "b"], answer="accept"), *objects(["a"], answer="reject")),
        {},
    ),
    "T24 Shift-JIS": (
        "s.csv",
        csv(rows=labelled("良い", "悪い", text="この映画は")).encode("shift-jis"),
        {},
    ),
    "T25 parentheses": ("reviews (1).csv", csv(), {}),
    "T27 spaces in names": ("r.csv", csv(header=("Review Text", "label")), {"text": "Review Text"}),
    "T31 backslashes": ("b.csv", csv(rows=[(f'"he said \\"{t}\\""', a) for t, a in ROWS]), {}),
    "T32 several labels": (
        "l.csv",
        csv("\t", rows=labelled("pos;long", "neg")),
        {"kind": "multilabel"},
    ),
    "T33 scores": ("s.csv", csv(rows=labelled(*[f"{i / 7:.3f}" for i in range(30)])), {}),
    "T33 scores, regression": (
        "s.csv",
        csv(rows=labelled("0.5", "3", "4.25")),
        {"kind": "regression"},
    ),
    "T35 categories": (
        "c.parquet",
        parquet(
            {
                "text": [t for t, _ in ROWS],
                "label": pa.array(a for _, a in ROWS).dictionary_encode(),
            }
        ),
        {},
    ),
    "T36 null label": (
        "n.parquet",
        parquet({"text": list("abcd"), "label": ["x", "y", None, "x"]}),
        {},
    ),
    "T38 texts repeated": ("r.csv", csv(rows=ROWS * 3), {}),
    "T39 no label column": ("t.csv", csv(header=("text", "id")), {}),
    "T42 zero width": ("z.csv", csv(rows=[*ROWS, ("\u200b", "good")]), {}),
    "T43 ids repeat": (
        "i.csv",
        csv(rows=[(*row, i % 4) for i, row in enumerate(ROWS)], header=("text", "label", "id")),
        {},
    ),
    "an empty cell, skipped": ("e.csv", csv(rows=[*ROWS, ("", "good")]), {"empty": "skip"}),
    "texts to write": (
        "w.jsonl",
        lines(*({"prompt": f"{i} and 4", "completion": str(i + 4)} for i in range(6))),
        WRITE,
    ),
    "conversations": ("m.jsonl", lines(*({"messages": TURNS} for _ in range(4))), TALK),
    "a question last": ("m.jsonl", lines({"messages": TURNS[:1]}), TALK),
    "an unknown role": ("m.jsonl", lines({"messages": [{"role": "bot", "content": "a"}]}), TALK),
}
"""Name: file name, content, and keys of `task=csv`."""


def reading(file, keys):
    """Return the counts of labels that a table gives, with its first row; or the refusal."""
    from ptrun.task.own import Own

    written = {"messages", "answer"} & {*keys}
    keys = {**({} if written else {"text": "text", "label": "label"}), **keys}
    try:
        task = Own(None, train=str(file), **keys)
        examples = task.load("train")
        counts = Counter(map(str, (one.target for one in examples)))
        read = {"labels": dict(sorted(counts.items())), "first": str(dict(examples[0].fields))}
        return {**read, "rows": str(task.accounts["train"]), "listed": list(task.labels)}
    except UserError as error:
        return {"refused": str(error).replace(f"{file.parent}/", "")}


def tables(folder):
    answers = {}
    for number, (name, (file_name, content, keys)) in enumerate(TABLES.items()):
        file = folder / str(number) / file_name
        file.parent.mkdir()
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        answers[name] = reading(file, keys)
    return answers


def papers():
    """Return for each table of a paper: the cells with a run, why others have none, and digests.

    A digest is that of the composed configuration of the first cell of each method.
    """
    from ptrun.config.compose import compose_run
    from ptrun.config.identity import NOT_OF_A_RUN, canonical
    from ptrun.papers import experiment
    from ptrun.runs.plan import with_readout

    answers = {}
    for name in experiment.names():
        table = experiment.load(name)
        reasons = Counter(table.reason(cell) or "has a run" for cell in table.cells)
        firsts = {}
        for cell in table.cells:
            if table.reason(cell) is None:
                firsts.setdefault(cell.at["method"], cell)
        digests = {}
        for method, cell in firsts.items():
            composed = with_readout(compose_run([*table.overrides(cell), "outputs=outputs"]))
            config = {k: v for k, v in composed.config.items() if k not in NOT_OF_A_RUN}
            text = canonical({"config": config, "names": composed.names})
            digests[method] = hashlib.sha256(text.encode()).hexdigest()[:8]
        answers[name] = {"cells": dict(sorted(reasons.items())), "composed": digests}
    return answers
