"""Own tables: what a library writes is read back equal, and any bytes are read or refused."""

import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, example, given
from hypothesis import strategies as st

from ptrun.task.own import Own
from ptrun.task.table import FOUND, Given
from ptrun.task.table import table as table_of
from tests.fuzz.strategies import JSON, LINES, TEXTS, fewer, read_or_refused, spoilt
from tests.task.tables import sheet

NAMES = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)
CELLS = LINES.filter(lambda cell: "\0" not in cell)
ENDINGS = st.sampled_from([".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz", ".jsonl.gz", ".TSV"])
ROWS = st.fixed_dictionaries({"text": CELLS, "label": st.sampled_from(["a", "b", "1", ""])})


@st.composite
def tables(draw, cells=CELLS):
    """Draw column names and rows; no row is all blank, because such rows are skipped."""
    names = draw(NAMES)
    line = st.lists(cells, min_size=len(names), max_size=len(names))
    body = draw(st.lists(line.filter(lambda row: any(c.strip() for c in row)), max_size=5))
    assume(body)
    return names, body


def written(names, body, **form):
    """Return a table as the csv module writes it."""
    text = io.StringIO(newline="")
    csv.writer(text, **form).writerows([names, *body])
    return text.getvalue().encode()


def read(file, wanted, form=FOUND):
    return [[row.data[name] for name in wanted] for row in table_of(file, form).rows(wanted)]


@given(
    tables(),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.booleans(),
)
@example((["a"], [["\ufeff"]]), ",", "\n", csv.QUOTE_MINIMAL, "utf-8", False)
@example((["a"], [["x" * 200_000]]), ",", "\n", csv.QUOTE_MINIMAL, "utf-8", False)
@example((["a", "b"], [["\x85", "x"]]), ",", "\n", csv.QUOTE_MINIMAL, "utf-8", False)
def test_what_csv_writes_is_read_back(place, table, separator, end, quoting, encoding, packed):
    names, body = table
    assume(len(names) > 1 or separator == ",")  # the header of one column names no separator
    bare = quoting == csv.QUOTE_MINIMAL and end == "\n"  # then csv writes \r without quotes
    assume(not (bare and any("\r" in cell for row in body for cell in row)))
    content = written(names, body, delimiter=separator, lineterminator=end, quoting=quoting)
    content = content.decode().encode(encoding)
    file = place / ("t.csv.gz" if packed else "t.csv")
    file.write_bytes(gzip.compress(content) if packed else content)
    assert table_of(file).columns == names
    assert read(file, names) == body


@given(tables(TEXTS.filter(lambda cell: not set(cell) & set("\t\r\n\0"))))
def test_plain_quotes_of_a_tsv_are_text(place, table):
    names, body = table
    file = place / "t.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in [names, *body]), newline="")
    assert read(file, names, Given(quoting="none")) == body


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
    own = Own(None, train=str(file), text="text", label="label", empty="skip")
    if (found := read_or_refused(own.load, "train")) is not None:
        account = own.accounts["train"]
        assert account.read == len(found) + account.left_out.total()
