"""The tables of howto/data.md: each form, label and export that they name is read."""

from tests.docs.pages import ROOT, blocks, source, text
from tests.task.tables import PACKED, READ
from tests.task.test_own import LABELS as OWN_LABELS


def first_cells(header):
    """Return the first cells of the table with this header."""
    lines = text("howto/data.md").partition(f"| {header} |")[2].splitlines()[2:]
    body = lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]
    return [line.split("|")[1].strip() for line in body]


FORMS = {
    "CSV, TSV": ["separated by ';'", "TSV", "a first line sep=;", "UTF-16", "CRLF", "CR"],
    "JSON, JSON lines": [
        *("lines in a.jsonl", "a list in a.json", "objects over lines in a.json"),
        *("an object with a list in a.json", "orient=records", "orient=columns"),
        *("orient=index", "orient=split", "orient=table"),
    ],
    "parquet, Arrow": ["parquet", "Arrow", "a folder of datasets", "classes", "lists of classes"],
    "Excel": ["Excel", "Excel by content"],
    "several files": ["numbered files", "numbered files by a *"],
    "packed": [
        *(f"{form}, by content" for form in PACKED),
        *(f"{form}, by name" for form in PACKED),
    ],
}
"""The cases of `tests/task/tables.py` that each form of the page names."""
LABELS = {
    "`1` and `1.0`; `True` and `true`; ` pos `, `[\"pos\"]` and `['pos']`": ["all forms"],
    "`nan`, `-`, `#N/A`, -1 beside numbers from 0 or beside names": ["skipped", "skipped -1"],
    "an empty cell": ["empty", "empty, skipped"],
    "`a;b`, a list of several": ["semicolons", "lists of several"],
    "sentences, nearly all different": ["sentences"],
    "many numbers with fractions": ["scores", "regression"],
}
"""The cases of `tests/task/test_own.py` that each label of the page names."""


def test_the_tables_name_what_is_tested():
    assert first_cells("a file") == list(FORMS) and first_cells("a label") == list(LABELS)
    tested = {
        f"`{file.stem.removeprefix('test_')}`"
        for file in (ROOT / "tests/importing/data").glob("test_*.py")
    }
    assert set(first_cells("`ptrun import`")) - tested == {"`label_studio`"}  # in test_spans.py
    assert {name for names in FORMS.values() for name in names} <= READ.keys()
    assert {name for names in LABELS.values() for name in names} <= OWN_LABELS.keys()


def test_the_files_of_formats_are_those_of_the_examples():
    files = {block.title: block.code for block in blocks(source("howto/formats.md")) if block.title}
    folder = ROOT / "examples"
    kept = {file.name for file in folder.iterdir() if file.suffix != ".ipynb"}
    assert kept == files.keys() and len(kept) == 8
    for name, content in files.items():
        assert (folder / name).read_text(encoding="utf-8") == content, name
