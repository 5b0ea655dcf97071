"""A parquet file of somebody else: equal long texts are read once."""

import pyarrow
import pyarrow.parquet
import pytest

from ptrun.task import table


@pytest.fixture
def long_text(tmp_path):
    """Return a file of some KB whose 400 rows would be 1.2 GB in one batch."""
    text = "x" * 3_000_000
    column = pyarrow.array([text]).dictionary_encode()
    whole = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 400, "int32"), column.dictionary
    )
    file = tmp_path / "train.parquet"
    rows = pyarrow.table({"text": whole.cast("string"), "label": ["a"] * 400})
    pyarrow.parquet.write_table(rows, file, compression="zstd")
    assert file.stat().st_size < 100_000
    return file


def test_equal_texts_are_stored_once(long_text):
    before = pyarrow.total_allocated_bytes()
    rows = table.table(long_text).rows(["text", "label"])
    most = 0
    for _, row in zip(range(50), rows, strict=False):
        most = max(most, pyarrow.total_allocated_bytes() - before)
        assert len(row.data["text"]) == 3_000_000
    assert most < 100_000_000
