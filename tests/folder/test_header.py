"""Headers of prompt and state files: one key, so equal content is equal bytes."""

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ptrun.folder.digest import packed, unpacked


def test_equal_headers_are_equal_bytes_in_any_order(tmp_path):
    keys = [f"key{number}" for number in range(20)]
    header = {key: f"value of {key}" for key in keys}
    for name, order in (("a", keys), ("b", keys[::-1])):
        save_file(
            {"x": torch.ones(2)}, tmp_path / name, packed({key: header[key] for key in order})
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with safe_open(tmp_path / "a", "pt") as opened:
        assert unpacked(opened.metadata()) == header
