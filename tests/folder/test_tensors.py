"""Files of tensors: equal content is equal bytes, and no damage is read."""

import errno
import random
import resource

import pytest
import torch

from ptrun.errors import UserError
from ptrun.folder import tensors as files

HEADER = {"method": '{"length": 4}', "task": '{"labels": ["bad", "good"]}', "backbone": "{}"}
TENSORS = {
    "prompt.table": torch.arange(12, dtype=torch.float32).view(3, 4),
    "half": torch.ones(2, 2, dtype=torch.bfloat16),
    "count": torch.tensor(3),
    "none": torch.zeros(0, 4),
}


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "prompt.safetensors"
    files.draft(made, TENSORS, HEADER)()
    return made


def test_equal_content_is_equal_bytes_whatever_the_order(file, tmp_path):
    other, turned = tmp_path / "other", dict(reversed([*TENSORS.items()]))
    files.draft(other, turned, dict(reversed([*HEADER.items()])))()
    assert file.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("read", [files.read, files.hashes])
def test_no_damage_is_read(file, read):
    """A file with a flipped bit is refused, or gives what was written."""
    whole, draw, refused = file.read_bytes(), random.Random(1), 0
    for _ in range(300):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(
            content if draw.random() < 0.7 else content[: draw.randrange(len(content))]
        )
        try:
            found = read(file, "Do it again.")
        except UserError as error:
            refused += 1
            assert str(file) in str(error) and str(error).endswith("Do it again.")
        else:
            tensors = found[0] if read is files.read else TENSORS
            assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert refused > 280


def test_a_swapped_label_in_the_header_is_noticed(file):
    content = file.read_bytes()
    swapped = content.replace(
        b'\\\\\\"bad\\\\\\", \\\\\\"good\\\\\\"', b'\\\\\\"good\\\\\\", \\\\\\"bad\\\\\\"'
    )
    assert swapped != content and len(swapped) == len(content)
    file.write_bytes(swapped)
    with pytest.raises(UserError, match=r"prompt.safetensors: damaged \(its digest is another\)"):
        files.read(file, "")


def test_a_file_that_cannot_be_read_is_not_called_damaged(tmp_path):
    with pytest.raises(UserError, match=r"none: cannot be read"):
        files.read(tmp_path / "none", "")


def test_a_full_disk_is_named_and_leaves_no_draft(file):
    before, limit = file.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large") as raised:
            files.draft(file, {"large": torch.ones(10_000)}, HEADER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert raised.value.errno == errno.EFBIG and raised.value.filename == str(file)
    assert [own.name for own in file.parent.iterdir()] == [file.name]
    assert file.read_bytes() == before
