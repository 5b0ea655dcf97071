"""Tables as people have them: what each holds, or what its refusal says. Data, no code of tests.

The issues that most cases come from are named in the drill's list; other pages read these tables
too (`tests/docs/test_data_forms.py`).
"""

import bz2
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import datasets
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = [(f"a film number {i}", "pos" if i % 2 else "neg") for i in range(12)]
FRAME = pd.DataFrame(ROWS, columns=["text", "label"])
WORDS = [
    ["delightful", "magnificent", "marvellous", "charming", "fine"],
    ["horrible", "lousy", "shabby", "pathetic", "mediocre"],
]


def reviews():
    """Return 20 rows: 10 positive, 10 negative."""
    made = []
    for i in range(10):
        thing = ["cafe", "boat", "hall", "crew"][i % 4]
        for words, label in zip(WORDS, ("positive", "negative"), strict=True):
            text = f"The {thing} was {words[i % 5]} and really {words[(i + 2) % 5]}."
            made.append({"text": text, "label": label})
    return made


def delimited(rows, separator=","):
    lines = [separator.join(rows[0])]
    lines += [separator.join(f'"{cell}"' for cell in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


def cells(rows=ROWS, separator=",", header="text,label", end="\n"):
    lines = [header.replace(",", separator), *(separator.join(row) for row in rows)]
    return "".join(line + end for line in lines)


def objects(rows=ROWS):
    return [{"text": text, "label": label} for text, label in rows]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def parquet(columns, *types):
    buffer = io.BytesIO()
    arrays = [pa.array(values, *types[i : i + 1]) for i, values in enumerate(columns.values())]
    pq.write_table(pa.Table.from_arrays(arrays, names=list(columns)), buffer)
    return buffer.getvalue()


def buffered(write):
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def sheet(*rows, more=()):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    if more:
        book.create_sheet("more").append(more)
    return buffered(book.save)


def changed_sheet(rows, old, new):
    """Return a sheet with other bytes in its XML: a size or a row that no program means."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sheet(*rows))) as right, zipfile.ZipFile(buffer, "w") as wrong:
        for name in right.namelist():
            wrong.writestr(name, right.read(name).replace(old, new))
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def classes(values, feature):
    """Return parquet of the hub, whose labels are numbers with names."""
    kinds = datasets.Features({"text": datasets.Value("string"), "label": feature})
    rows = {"text": ["a", "b"], "label": values}
    return buffered(datasets.Dataset.from_dict(rows, features=kinds).to_parquet)


NAMED = datasets.ClassLabel(names=["neg", "pos"])


def saved(folder):
    table = datasets.Dataset.from_pandas(FRAME).cast_column("label", NAMED)
    table.save_to_disk(folder, num_shards=3)


def parts(folder):
    """Write a file for each row, as Spark does."""
    folder.mkdir()
    for number, row in enumerate(ROWS):
        (folder / f"part-{number:05}-a.csv").write_text(cells([row]))
    (folder / "_SUCCESS").touch()


def quoted(separator):
    """Return a table whose second text begins with a quote, and whose fourth ends with one."""
    rows = [*ROWS]
    rows[1], rows[3] = (f'"{rows[1][0]}', rows[1][1]), (f'{rows[3][0]}"', rows[3][1])
    return cells(rows, separator), rows


def case(content, rows=ROWS, file="a.csv", **keys):
    return file, content, rows, keys


AB = [("a", "x"), ("b", "y")]
PAIR, ONES = [("a", "neg"), ("b", "pos")], [("a", "1"), ("b", "0")]
SPLIT = 'text,label\n"one, two\nthree",x\nb,y\n'
SAID = 'text,label\n"He said \\"hi\\", then left",x\nb,y\n'
BRACKETS = [('a } ] { [ " \\ b', "x"), AB[1]]
COLUMNS = {n: [*column] for n, column in zip("01", zip(*ROWS, strict=True), strict=True)}
RAGGED = [(None,), ("text", "label", None, "note"), AB[0], ("b", "y", 1, "n", "o"), (None,)]
CHINESE = [(f"这部电影很好{i}", "好" if i % 2 else "悪") for i in range(12)]
JAPANESE = [(f"この映画は良い{i}", "好" if i % 2 else "悪") for i in range(12)]
INDEX = ",text,label\n" + "".join(f"{i},{text},{label}\n" for i, (text, label) in enumerate(ROWS))
PACKED = {
    "gzip": gzip.compress(cells().encode()),
    "bzip2": bz2.compress(cells().encode()),
    "xz": lzma.compress(cells().encode()),
    "zstandard": bytes(pa.compress(cells().encode(), codec="zstd", asbytes=True)),
    "zip": zipped({"a.csv": cells()}),
}
READ = {
    # Files with separators.
    **{f"separated by {s!r}": case(cells(separator=s)) for s in ",;|\t"},
    "TSV": case(cells(separator="\t"), file="a.tsv"),
    "a first line sep=;": case("sep=;\n" + cells(separator=";")),
    "CR": case(cells(end="\r")),
    "CRLF": case(cells(end="\r\n")),
    "BOM": case(b"\xef\xbb\xbf\xef\xbb\xbf" + cells().encode()),
    **{
        f"BOM {encoding}": case(b"\xef\xbb\xbf" + cells().encode(), encoding=encoding)
        for encoding in ("UTF8", "utf-8", "utf_8_sig")
    },
    "UTF-16": case(cells().encode("utf-16")),
    "UTF-16 with CR": case(cells(end="\r").encode("utf-16")),
    "GB18030": case(cells(CHINESE).encode("gb18030"), CHINESE, encoding="gb18030"),
    "Shift-JIS": case(cells(JAPANESE).encode("shift_jis"), JAPANESE, encoding="shift_jis"),
    "spaces in quotes": case('"text", "label"\n"a, c", "x"\n"b", "y"\n', [("a, c", "x"), AB[1]]),
    "an index": case(INDEX),
    "the end of DOS": case(cells() + "\x1a"),
    "a blank line": case("text,label\na,x\n\nb,y\n\n", AB),
    "a typed separator": case("text/label,2\na/x\nb/y\n".replace(",2", ""), AB, separator="/"),
    "no header": case(cells(header="").lstrip(), columns=["text", "label"]),
    "numbers as names": case(cells(header="0,1"), text=0, label=1),
    "a cell of several lines": case(
        'text,label\n"first,\nsecond ""line""",x\nb,y\n', [('first,\nsecond "line"', "x"), AB[1]]
    ),
    "lines that could be rows": case(SPLIT, [("one, two\nthree", "x"), AB[1]], quoting="cells"),
    "lone quotes of TSV": case(*quoted("\t"), "q.tsv", quoting="none"),
    "backslashes": case(SAID, [('He said "hi", then left', "x"), AB[1]], quoting="backslash"),
    "a quote within": case('text,label\nfine "x" y,x\nb,y\n', [('fine "x" y', "x"), AB[1]]),
    "a CR in a cell": case("text,label\na\rb,x\nb,y\n", [("a\rb", "x"), AB[1]]),
    "an escape that is none": case('text,label\n"a ""b"" \\",x\nb,y\n', [('a "b" \\', "x"), AB[1]]),
    "texts that may mean none": case("text,label\nnull,x\nNA,y\n", [("null", "x"), ("NA", "y")]),
    # JSON, by its bracket.
    **{
        f"{form} in {name}": case(content, file=name)
        for name in ("a.json", "a.jsonl", "a.csv", "a.txt")
        for form, content in {
            "lines": lines(objects()),
            "a list": json.dumps(objects()),
            "a list over lines": json.dumps(objects(), indent=2),
            "objects over lines": "\n".join(json.dumps(row, indent=2) for row in objects()),
            "an object with a list": json.dumps({"documents": objects(), "version": "1"}),
        }.items()
    },
    **{
        f"orient={orient}": case(FRAME.to_json(orient=orient), file="a.json")
        for orient in ("records", "columns", "index", "split", "table")
    },
    "rows by id": case(json.dumps({f"id{i}": r for i, r in enumerate(objects())}), file="a.json"),
    "columns of an index of texts": case(
        FRAME.set_index(FRAME.index.map("abcdefghijkl".__getitem__)).to_json(), file="a.json"
    ),
    **{
        f"{name} of numbers": case(json.dumps(content), file="a.json", text="0", label="1")
        for name, content in {
            "an index": {i: {"0": text, "1": label} for i, (text, label) in enumerate(ROWS)},
            "columns": {name: dict(enumerate(column)) for name, column in COLUMNS.items()},
        }.items()
    },
    "brackets in texts": case(json.dumps(objects(BRACKETS), indent=1), BRACKETS, "a.json"),
    "numbers in JSON": case(
        lines(objects([(1, 1.0), (3.5, True)])), [("1", "1"), ("3.5", "true")], "a.jsonl"
    ),
    # Packed files.
    **{f"{form}, by content": case(content) for form, content in PACKED.items()},
    **{
        f"{form}, by name": case(PACKED[form], file=f"a.csv.{end}")
        for form, end in zip(PACKED, ("gz", "bz2", "xz", "zst", "zip"), strict=True)
    },
    "gzip of many members": case(gzip.compress(b"", mtime=0) * 50_000 + PACKED["gzip"]),
    "a zip of a Mac": case(
        zipped({"f/": "", "f/a.csv": cells(), "__MACOSX/f/._a.csv": "0", ".DS_Store": "0"})
    ),
    # parquet, Arrow and Excel.
    "parquet": case(buffered(FRAME.to_parquet)),
    "Arrow": case(buffered(FRAME.to_feather), file="a.arrow"),
    "a folder of datasets": case(saved, file="saved"),
    "classes": case(classes([0, 1], NAMED), PAIR, "a.parquet"),
    "lists of classes": case(classes([[0], [1]], datasets.List(NAMED)), PAIR),
    "Excel": case(buffered(lambda file: FRAME.to_excel(file, index=False)), file="a.xlsx"),
    "Excel by content": case(sheet(("text", "label"), *AB, more=["x"]), AB),
    "Excel of a wrong size": case(
        changed_sheet([("text", "label"), *ROWS], b'"A1:B13"', b'"A1:B5"'), file="a.xlsx"
    ),
    "Excel of ragged rows": case(sheet(*RAGGED), AB, "a.xlsx"),
    "Excel of numbers": case(sheet(["text", "label"], ["a", 1], ["b", 0.0]), ONES, "a.xlsx"),
    # Several files.
    "numbered files": case(parts, file="part"),
    "numbered files by a *": case(parts, file="part/part-*-a.csv"),
}

QUOTES, CP1252, DATES = "double quotes", "cp1252 if it says 'caf\u00e9,c'", pa.timestamp("ns")
AGAIN = "text,label\na,x\nb,y\ntext,label\nc,x\n"
REFUSED = {
    # quotes and cells
    "q.tsv: a lone quote of TSV": (quoted("\t")[0], "q.tsv:3: a quote opens", "task.quoting=none"),
    "lines that could be rows": (SPLIT, "a.csv:2", "task.quoting=cells"),
    "a quote left open": ('text,label\na,x\n"fine,y\nb,y\n', "a.csv:3", "Close every quote"),
    "text after a quote": ('text,label\n"fine" x,y\n', "a.csv:2", "Close every quote"),
    "a backslash": ('text,label\n"He said \\"hi\\"",x\n', "a.csv:2", "task.quoting=backslash"),
    "a cell too many": ("text,label\na,b,c\nd,e\n", "a.csv:2: 3 cells, the header has 2", QUOTES),
    "a cell too few": ("text,label\na,x\nalone\n", "a.csv:3: 1 cells, the header has 2", QUOTES),
    "numbers of R": ('"text";"label"\n"1";"a";"x"\n', "a.csv:2", QUOTES),
    "a separator at the end": ("text,label\na,x,\n", "a.csv:2", QUOTES),
    "a header that ends so": ("text,label,\na,x\n", "a.csv:2", QUOTES),
    "a separator": ("text;label,2,3\na;x\n", "no column 'text'", "name the columns, 3 in all"),
    "the header again": (AGAIN, "a.csv:4: the names of the columns again", "Delete this line"),
    "a name twice": ("text,label,text\na,b,c\n", "a.csv:1: column 'text' appears twice"),
    "no header": ("fine,good\npoor,bad\n", "names the columns: fine, good", "task.columns=[...]"),
    "a misspelt column": ("text,lable\na,x\n", "no column 'label'; did you mean 'lable'?"),
    "empty": ("", "a.csv: empty"),
    "spaces": (" \n \n", "a.csv: empty"),
    "a header alone": ("text,label\n", "a.csv: no rows below the header"),
    "empty cells": (
        *("text,label\n,x\na,\n\u200b,y\n", "a.csv:2: an empty cell"),
        *("in 3 rows: a.csv:2, a.csv:3, a.csv:4", "task.empty=skip"),
    ),
    # bytes
    "NUL": ("text,label\na\0b,x\n", "a.csv:2: a NUL byte"),
    "a surrogate": (b"text,label\n\xed\xa0\x80,x\n", "a.csv:2: byte 0xed at 1", "UTF-8"),
    "CP1252": (b"text,label\na,b\ncaf\xe9,c\n", "a.csv:3: byte 0xe9 at 4", CP1252),
    "GB18030": (cells(CHINESE).encode("gb18030"), "a.csv:2", "gb18030 if it says '这部电影很好0"),
    "Shift-JIS": (
        cells(JAPANESE).encode("shift_jis"),
        "a.csv:2",
        "shift_jis if it says 'この映画は良い0",
    ),
    "CP1251": (cells([("Очень хороший", "1")] * 20).encode("cp1251"), "a.csv:2: byte 0xce at 1"),
    "another Unicode": (cells().encode("utf-16-le") + b"x", "a.csv:1", "NUL"),
    # files that are no table
    "HTML": ("<!DOCTYPE html>\n<p>text,label", "a page of HTML"),
    "Git LFS": ("version https://git-lfs.github.com/spec/v1\noid x\n", "git lfs pull"),
    "fastText": ("__label__pos a film\n", "lines of fastText"),
    "old Excel": (b"\xd0\xcf\x11\xe0" + bytes(100), "an old Excel file"),
    "zip of nothing": (b"PK\x03\x04abc", "a damaged Excel or zip file"),
    "a.zip: two": (zipped({"a.csv": "x", "b.csv": "y"}), "a zip file of a.csv, b.csv; unpack it"),
    "a.csv.gz: cut gzip": (PACKED["gzip"][:-9], "a.csv.gz:", "pack it again"),
    "a.csv.gz: no gzip": (cells(), "not a gzip file, though its name says so"),
    "a.parquet.gz: parquet": (gzip.compress(b"PAR1" + bytes(50)), "parquet inside gzip; unpack it"),
    "a.parquet: cut parquet": (buffered(FRAME.to_parquet)[:-9], "not readable as parquet"),
    "a.parquet: no parquet": (cells(), "not parquet, though its name says so"),
    "a.xlsx: a row far below": (
        changed_sheet([("text", "label"), *AB], b'<row r="3"', b'<row r="99999999999999"'),
        "a row below 1,048,576",
    ),
    "a.xlsx: no Excel": (cells(), "not excel, though its name says so"),
    "a.dat: a name of no form": ("a b\n", "unknown kind of file; save the table as one"),
    "a.tar: an archive": ("a b\n", "unknown kind of file"),
    # JSON
    "a.json: a list of columns": ('{"text":["a","b"],"label":["x","y"]}', "is a list", "orient="),
    "a.json: two lists": (json.dumps({"train": objects(), "test": objects()}), "lists train, test"),
    "a.json: no object": ('[{"text": "a", "label": "b"}, 3]', "is not an object"),
    "a.json: cut": ('{"text": "a",\n "label": "b"', "Expecting ',' delimiter at line 2, column 14"),
    "a.jsonl: no JSON": ('{"text": "a"}\n{"text": }\n', "a.jsonl:2: not JSON (", "column 10"),
    "a.jsonl: twice": ('{"text": "a", "text": "b"}\n', "a.jsonl:1", "key 'text' appears twice"),
    "a.jsonl: too large": ('{"text": "a", "label": 1e400}\n', "1e400"),
    "a.jsonl: half a pair": ('{"text": "\\ud83d", "label": "x"}\n', "an unpaired surrogate"),
    "a.jsonl: a missing key": (
        lines([{"text": "a"}, *objects(AB[:1]), {"label": "y"}]),
        "in 2 rows: a.jsonl:1, a.jsonl:3",
    ),
    # parquet
    "a.parquet: nulls": (parquet({"text": ["a", None], "label": [1.0, 0.0]}), "in 1 rows"),
    "a.parquet: bytes": (parquet({"text": [b"a"], "label": ["x"]}), "row 1: ", "expected text"),
    "a.parquet: dates": (parquet({"text": ["a"], "label": [1]}, pa.string(), DATES), "or a number"),
}
"""By file (a.csv) and case: the content, and what is said."""


def put(file, content):
    """Write the content of a case, unless another name for it did."""
    place = Path(file)
    if not callable(content):
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    elif "*" in file:
        content(place.parent)
    else:
        content(place)
