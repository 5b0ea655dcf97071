"""Tables of other programs: rows in are rows out and rows left out, and values are equal."""

import csv
import io
import json
import re

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ptrun.task.own import Own
from tests.fuzz.strategies import LINES

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff\ufffe\uffff\r\u2028\u2029]")
_BLANK = " \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\u200b\u200c\u200d\u2060\ufeff"
LABELS = {
    "words": st.sampled_from(["pos", "neg", "a b", "01", "naïve"]),
    "whole": st.integers(-1, 5),
    "floats": st.integers(0, 4).map(float),
    "truths": st.booleans(),
}
TEXTS = LINES.filter(lambda text: "\0" not in text) | st.sampled_from(
    [
        'He said "hi", twice',
        'one, "two"',
        " padded ",
        '"',
        "a;b\tc|d",
        "=1+1",
        "sep=;",
        "1.0",
        "nan",
    ]
)


@st.composite
def tables(draw):
    """Draw texts, and labels of one kind; some of both are missing."""
    kind = draw(st.sampled_from(sorted(LABELS)))
    label = st.none() | LABELS[kind] if draw(st.booleans()) else LABELS[kind]
    text = st.none() | TEXTS if draw(st.booleans()) else TEXTS
    rows = draw(st.lists(st.tuples(text, label), min_size=2, max_size=12))
    return rows


def frame(rows):
    return pd.DataFrame({"text": [t for t, _ in rows], "label": [b for _, b in rows]})


def polars(rows):
    return pl.DataFrame({"text": [t for t, _ in rows], "label": [b for _, b in rows]}, strict=False)


def cells(rows, **form):
    """Return a table as the csv module writes it."""
    text = io.StringIO(newline="")
    shown = [["" if cell is None else cell for cell in row] for row in rows]
    csv.writer(text, **form).writerows([["text", "label"], *shown])
    return text.getvalue()


def dialect(**form):
    return lambda rows, file: file.write_bytes(cells(rows, **form).encode())


def excel(rows, file):
    assume(not any(_CONTROL.search(t or "") or (t or "").startswith("=") for t, _ in rows))
    frame(rows).to_excel(file, index=False)


def sep(rows, file):
    file.write_bytes(b"\xef\xbb\xbfsep=;\r\n" + cells(rows, delimiter=";").encode())


def spaced(rows, file):
    quoted = cells(rows, quoting=csv.QUOTE_ALL)
    assume(not any(mark in (t or "") for t, _ in rows for mark in '"\n\r,'))
    file.write_text(quoted.replace('","', '", "'), encoding="utf-8", newline="")


ARROW = {"preserve_index": False}
WRITERS = {
    "csv.csv": dialect(lineterminator="\n"),
    "excel.csv": dialect(dialect="excel"),
    "excel_tab.tsv": dialect(dialect="excel-tab"),
    "unix.csv": dialect(dialect="unix"),
    "office.csv": dialect(delimiter=";", quoting=csv.QUOTE_NONNUMERIC),
    "bars.csv": dialect(delimiter="|", quoting=csv.QUOTE_ALL),
    "spaced.csv": spaced,
    "sep.csv": sep,
    "pandas.csv": lambda rows, file: frame(rows).to_csv(file, index=False),
    "pandas_index.csv": lambda rows, file: frame(rows).to_csv(file),
    "pandas.tsv": lambda rows, file: frame(rows).to_csv(file, index=False, sep="\t"),
    "pandas_bom.csv": lambda rows, file: frame(rows).to_csv(
        file, index=False, encoding="utf-8-sig"
    ),
    "pandas_wide.csv": lambda rows, file: frame(rows).to_csv(file, index=False, encoding="utf-16"),
    "pandas.csv.gz": lambda rows, file: frame(rows).to_csv(file, index=False),
    "pandas.csv.bz2": lambda rows, file: frame(rows).to_csv(file, index=False),
    "pandas.csv.xz": lambda rows, file: frame(rows).to_csv(file, index=False),
    "pandas.csv.zip": lambda rows, file: frame(rows).to_csv(file, index=False),
    "pandas.jsonl": lambda rows, file: frame(rows).to_json(file, orient="records", lines=True),
    "pandas.json": lambda rows, file: frame(rows).to_json(file, orient="records"),
    "pandas_indent.json": lambda rows, file: frame(rows).to_json(file, orient="records", indent=2),
    **{
        f"pandas_{orient}.json": lambda rows, file, orient=orient: frame(rows).to_json(
            file, orient=orient
        )
        for orient in ("columns", "index", "split", "table")
    },
    "pandas.parquet": lambda rows, file: frame(rows).to_parquet(file),
    "pandas.feather": lambda rows, file: frame(rows).to_feather(file),
    "pandas.xlsx": excel,
    "polars.csv": lambda rows, file: polars(rows).write_csv(file),
    "polars_all.csv": lambda rows, file: polars(rows).write_csv(
        file, quote_style="always", include_bom=True
    ),
    "polars.ndjson": lambda rows, file: polars(rows).write_ndjson(file),
    "polars.json": lambda rows, file: polars(rows).write_json(file),
    "polars.parquet": lambda rows, file: polars(rows).write_parquet(file),
    "polars.arrow": lambda rows, file: polars(rows).write_ipc(file, compression="zstd"),
    "polars_stream.arrow": lambda rows, file: polars(rows).write_ipc_stream(file),
    "arrow.csv": lambda rows, file: pa.csv.write_csv(pa.Table.from_pandas(frame(rows)), file),
    "arrow.parquet": lambda rows, file: pa.parquet.write_table(
        pa.Table.from_pandas(frame(rows), **ARROW), file, row_group_size=3
    ),
    "json.jsonl": lambda rows, file: file.write_text(
        "".join(json.dumps({"text": t, "label": b}) + "\r\n" for t, b in rows)
    ),
}


def normal(label):
    """Return a label as every kind of file should give it."""
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) else str(label).strip()


def kept(rows):
    """Return the rows whose cells are both filled."""
    full = [(t, b) for t, b in rows if t is not None and b is not None]
    return [(t, normal(b)) for t, b in full if t.strip(_BLANK).strip().strip(_BLANK)]


@given(tables(), st.sampled_from(sorted(WRITERS)))
@example([(" padded ", 1), ('one, "two"', 0)], "csv.csv")
@example([("a\rb", "pos"), ("c", "neg")], "csv.csv")
@example([(None, True), ("x", None), ("y", False)], "pandas.csv")
def test_what_another_program_writes_is_read_whole(place, rows, writer):
    wanted = kept(rows)
    assume(wanted)
    form = "a" + writer.partition(".")[1] + writer.partition(".")[2]
    file = place / form
    WRITERS[writer](rows, file)
    quoting = "cells" if re.search(r"\.[ct]sv", form) else None
    own = Own(None, train=str(file), text="text", label="label", empty="skip", quoting=quoting)
    found = own.load("train")
    assert [(e.fields["text"], e.target) for e in found] == wanted
    account = own.accounts["train"]
    assert account.read == len(rows) == len(found) + account.left_out.total()
