"""Own tables: what a library writes is read back equal, and any bytes are read or refused."""

import csv
import gzip
import io
import json
import re
from functools import partial

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ptrun.task.own import Own
from ptrun.task.table import Given
from ptrun.task.table import table as table_of
from tests.fuzz.strategies import JSON, LINES, TEXTS, fewer, read_or_refused, spoilt
from tests.task.tables import sheet

CELLS = LINES.filter(lambda cell: "\0" not in cell)
ENDINGS = st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz", ".TSV"])
ROWS = st.fixed_dictionaries({"text": CELLS, "label": st.sampled_from(["a", "b", "1", ""])})


def written(names, body, **form):
    """Return a table as the csv module writes it."""
    text = io.StringIO(newline="")
    csv.writer(text, **form).writerows([names, *body])
    return text.getvalue().encode()


@given(st.lists(TEXTS.filter(lambda cell: cell.strip() and not set(cell) & set("\t\r\n\0"))))
def test_plain_quotes_of_a_tsv_are_text(place, texts):
    file = place / "t.tsv"
    file.write_text("text\tlabel\n" + "".join(f"{text}\tx\n" for text in [*texts, "a"]), newline="")
    rows = table_of(file, Given(quoting="none")).rows(["text"])
    assert [row.data["text"] for row in rows] == [*texts, "a"]


def parquet(body):
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(body), buffer)
    return buffer.getvalue()


def arrow(body):
    buffer, table = io.BytesIO(), pa.Table.from_pylist(body)
    with pa.ipc.new_file(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


FILES = st.lists(ROWS, min_size=1, max_size=4).flatmap(
    lambda body: st.sampled_from(
        [
            written(["text", "label"], [list(row.values()) for row in body]),
            "".join(json.dumps(row) + "\n" for row in body).encode(),
            gzip.compress(json.dumps(body[0]).encode()),
            parquet(body),
        ]
    )
)


def loaded(file, quoting):
    task = Own(None, train=str(file), text="text", label="label", quoting=quoting)
    return [(e.id, dict(e.fields), e.target) for e in task.load("train")]


@given(spoilt(FILES) | st.binary(max_size=60), ENDINGS, st.sampled_from([None, "none"]))
@example(b"text,label\nx," + b"9" * 5000 + b"\n", ".csv", None)
@example(b'{"text": "x", "label": 1}\n{"text": "y", "label": 1e400}', ".jsonl", None)
@example(b"PAR1PAR1", ".parquet", None)
def test_any_file_is_read_or_refused(place, content, ending, quoting):
    file = place / f"own{ending}"
    file.write_bytes(content)
    for name, fields, label in read_or_refused(loaded, file, quoting) or ():
        assert name and label.strip() and fields["text"].strip()
        json.dumps([name, fields, label], ensure_ascii=False).encode("utf-8")


@fewer(4)
@given(st.lists(st.fixed_dictionaries({"text": JSON, "label": JSON}), min_size=1, max_size=3))
def test_any_values_of_a_table_are_read_or_refused(place, body):
    file = place / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in body))
    read_or_refused(loaded, file, None)
    try:
        file.with_suffix(".parquet").write_bytes(parquet(body))
    except (pa.ArrowException, OverflowError):  # Arrow's columns have one type
        return
    read_or_refused(loaded, file.with_suffix(".parquet"), None)


MADE = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
BINARY = {
    "xlsx": sheet(["text", "label"], ["a", 1], [None, None], ["b", 2.5]),
    "arrow": arrow(MADE),
    "parquet": parquet(MADE),
}


@fewer(2)
@given(st.sampled_from(sorted(BINARY)), st.data())
def test_a_damaged_binary_table_is_read_or_refused(place, kind, data):
    file = place / f"b.{kind}"
    file.write_bytes(data.draw(spoilt(st.just(BINARY[kind]))))
    read_or_refused(lambda: [str(row) for row in table_of(file).rows(table_of(file).columns)])


SHEET_CELLS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-5, 5)
    | st.sampled_from(["a", " ", "1", "=1+1", "#N/A", "TRUE"])
    | st.dates()
)


@fewer(4)
@given(st.lists(st.lists(SHEET_CELLS, max_size=4), max_size=5))
def test_any_sheet_is_read_or_refused(place, rows):
    file = place / "any.xlsx"
    file.write_bytes(sheet(["text", "label"], *rows))
    form = {"text": "text", "label": "label", "empty": "skip"}
    if (own := read_or_refused(partial(Own, None, train=str(file), **form))) is None:
        return
    if (found := read_or_refused(own.load, "train")) is not None:
        account = own.accounts["train"]
        assert account.read == len(found) + account.left_out.total()


# Tables of other programs: rows in are rows out and rows left out, and values are equal.

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff\ufffe\uffff\r\u2028\u2029]")
_BLANK = " \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\u200b\u200c\u200d\u2060\ufeff"
LABELS = {
    "words": st.sampled_from(["pos", "neg", "a b", "01", "naïve"]),
    "whole": st.integers(-1, 5),
    "floats": st.integers(0, 4).map(float),
    "truths": st.booleans(),
}
ODD_TEXTS = CELLS | st.sampled_from(
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
def labelled(draw):
    """Draw texts, and labels of one kind; some of both are missing."""
    kind = draw(st.sampled_from(sorted(LABELS)))
    label = st.none() | LABELS[kind] if draw(st.booleans()) else LABELS[kind]
    text = st.none() | ODD_TEXTS if draw(st.booleans()) else ODD_TEXTS
    rows = draw(st.lists(st.tuples(text, label), min_size=2, max_size=12))
    return rows


def frame(rows):
    return pd.DataFrame({"text": [t for t, _ in rows], "label": [b for _, b in rows]})


def polars(rows):
    return pl.DataFrame({"text": [t for t, _ in rows], "label": [b for _, b in rows]}, strict=False)


def cells(rows, **form):
    """Return a table as the csv module writes it."""
    shown = [["" if cell is None else cell for cell in row] for row in rows]
    return written(["text", "label"], shown, **form)


def dialect(**form):
    return lambda rows, file: file.write_bytes(cells(rows, **form))


def excel(rows, file):
    assume(not any(_CONTROL.search(t or "") or (t or "").startswith("=") for t, _ in rows))
    frame(rows).to_excel(file, index=False)


def sep(rows, file):
    file.write_bytes(b"\xef\xbb\xbfsep=;\r\n" + cells(rows, delimiter=";"))


def spaced(rows, file):
    quoted = cells(rows, quoting=csv.QUOTE_ALL).decode()
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


@given(labelled(), st.sampled_from(sorted(WRITERS)))
@example([(" padded ", 1), ('one, "two"', 0)], "csv.csv")
@example([("a\rb", "pos"), ("c", "neg")], "csv.csv")
@example([("x" * 200_000, "pos"), ("\x85", "neg")], "csv.csv")
@example([("\ufeffb", "pos"), ("c", "neg")], "pandas_wide.csv")
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
