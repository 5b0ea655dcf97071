"""The third part of the golden list: what files and cells of papers are answered.

Tables are those of public reports, with rows of our own. An answer is what was read, or a refusal.
"""

import gzip
import hashlib
import json
from collections import Counter
from functools import partial
from io import BytesIO

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ptrun.errors import UserError

ROWS = [(f"the {w} was {a}", a) for w in ("film", "plot", "cafe") for a in ("good", "bad") * 3]


def csv(separator=",", end="\n", rows=ROWS, header=("text", "label")):
    return end.join(separator.join(map(str, row)) for row in [header, *rows]) + end


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


def excel(frame):
    buffer = BytesIO()
    frame.to_excel(buffer, index=False)
    return buffer.getvalue()


def replaced(text, places):
    every = text.split("\n")
    for place, line in places.items():
        every[place] = line
    return "\n".join(every)


FRAME = pd.DataFrame(ROWS, columns=["text", "label"])
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
    "T2 pairs, lone quotes": ("q.tsv", replaced(PAIRS, {3: '"q\tr\t0', 7: 'q"\tr\t1'}), PAIR),
    "T3 quote never closed": ("q.tsv", replaced(csv("\t"), {3: '"Funny\tgood'}), {}),
    "T4 row cut in two": ("q.tsv", replaced(PAIRS, {3: "q", 4: "r\t0"}), PAIR),
    "T5 byte order mark": (
        "m.tsv",
        "\ufeff" + csv("\t", header=("#1 String", "label")),
        {"text": "#1 String"},
    ),
    "T6 no header": ("c.tsv", csv("\t").partition("\n")[2], {"text": "sentence"}),
    "T7 numeric header": ("n.csv", csv(header=(0, 1)), {"text": 0, "label": 1}),
    "T8 float labels, dev": ("f.csv", csv(rows=labelled("1.0", "0.0")), {}),
    "T9 1.0 and 1": ("f.csv", csv(rows=[*labelled("1.0", "0.0"), *labelled("1", "0")]), {}),
    "T10 floats in parquet": (
        "f.parquet",
        parquet({"text": list("abcdef"), "label": [1.0, 0.0] * 3}),
        {},
    ),
    "T11 nan": ("n.csv", csv(rows=labelled("good", "bad", "nan")), {}),
    "T12 no label": ("n.csv", csv(rows=labelled("good", "bad", "-")), {}),
    "T12 no label, skipped": ("n.csv", csv(rows=labelled("good", "bad", "-")), {"skip": ["-"]}),
    "T13 a JSON list": ("a.json", json.dumps(objects(["a", "b"])), {}),
    "T13 a JSON list in lines": ("a.jsonl", json.dumps(objects(["a", "b"])), {}),
    "T14 lines in .json": ("a.json", lines(*objects(["a", "b"])), {}),
    "T15 objects over lines": (
        "a.jsonl",
        "\n".join(json.dumps(o, indent=1) for o in objects(["a", "b"])),
        {},
    ),
    "T16 a list of one label": ("a.jsonl", lines(*objects([["a"], ["b"]])), {}),
    "T17 Prodigy's verdicts": (
        "a.jsonl",
        lines(*objects(["a", "b"], answer="accept"), *objects(["a"], answer="reject")),
        {},
    ),
    "T18 sep=;": ("s.csv", "sep=;\n" + csv(";"), {}),
    "T19 semicolons": ("s.csv", csv(";"), {}),
    "T20 CR alone": ("s.csv", csv(end="\r"), {}),
    "T21 CRLF, mark": ("s.csv", "\ufeff" + csv(end="\r\n"), {}),
    "T22 UTF-16": ("s.csv", csv().encode("utf-16"), {}),
    "T22 Latin-1": ("s.csv", csv(rows=labelled("café", "bad")).encode("latin-1"), {}),
    "T23 GB18030": (
        "s.csv",
        csv(rows=labelled("好", "坏", text="这部电影很有意思")).encode("gb18030"),
        {},
    ),
    "T24 Shift-JIS": (
        "s.csv",
        csv(rows=labelled("良い", "悪い", text="この映画は")).encode("shift-jis"),
        {},
    ),
    "T25 parentheses": ("reviews (1).csv", csv(), {}),
    "T27 spaces in names": ("r.csv", csv(header=("Review Text", "label")), {"text": "Review Text"}),
    "T28 an index": (
        "i.csv",
        csv(rows=[(i, *row) for i, row in enumerate(ROWS)], header=("", "text", "label")),
        {},
    ),
    "T29 a name twice": (
        "t.csv",
        csv(rows=[(*row, 1, 2) for row in ROWS], header=("text", "label", "x", "x")),
        {},
    ),
    "T30 space after comma": (
        "s.csv",
        csv(", ", rows=[(f'"{t}"', f'"{a}"') for t, a in ROWS], header=('"text"', '"label"')),
        {},
    ),
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
            {"text": FRAME["text"].tolist(), "label": pa.array(FRAME["label"]).dictionary_encode()}
        ),
        {},
    ),
    "T36 null label": (
        "n.parquet",
        parquet({"text": list("abcd"), "label": ["x", "y", None, "x"]}),
        {},
    ),
    "T36 bytes": ("n.parquet", parquet({"text": [b"a", b"b"] * 6, "label": ["x", "y"] * 6}), {}),
    "T37 booleans": (
        "b.parquet",
        parquet({"text": list("abcdef"), "label": [True, False] * 3}),
        {},
    ),
    "T38 texts repeated": ("r.csv", csv(rows=ROWS * 3), {}),
    "T39 no label column": ("t.csv", csv(header=("text", "id")), {}),
    "T40 words for nothing": (
        "w.csv",
        csv(rows=[("null", "a"), ("NA", "b"), ("None", "a"), ("nan", "b")]),
        {},
    ),
    "T42 zero width": ("z.csv", csv(rows=[*ROWS, ("\u200b", "good")]), {}),
    "T43 ids repeat": (
        "i.csv",
        csv(rows=[(*row, i % 4) for i, row in enumerate(ROWS)], header=("text", "label", "id")),
        {},
    ),
    "gzip": ("g.csv.gz", gzip.compress(csv().encode(), mtime=0), {}),
    "Excel": ("e.xlsx", partial(excel, FRAME), {}),
    "an empty cell": ("e.csv", csv(rows=[*ROWS, ("", "good")]), {}),
    "an empty cell, skipped": ("e.csv", csv(rows=[*ROWS, ("", "good")]), {"empty": "skip"}),
    "texts to write": (
        "w.jsonl",
        lines(*({"prompt": f"{i} and 4", "completion": str(i + 4)} for i in range(6))),
        WRITE,
    ),
    "an empty answer": (
        "w.jsonl",
        lines({"prompt": "a", "completion": ""}, {"prompt": "b", "completion": "c"}),
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
        content = content() if callable(content) else content
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        answers[name] = reading(file, keys)
    return answers


def papers():
    """Return for each table of a paper: the cells with a run, why others have none, and digests.

    A digest is that of the composed configuration of the first cell of each method.
    """
    from ptrun.config.compose import compose_run
    from ptrun.config.identity import NOT_OF_A_RUN, canonical
    from ptrun.ledger import experiment
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
