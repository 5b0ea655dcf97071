"""What every refusal has in common: few lines, the words that help, and nothing left behind."""

import pytest
import torch
from safetensors.torch import load_file

from ptrun.errors import UserError


def refused(importing, source, out, *words, **options):
    """Import and expect a `UserError` with these words; `out`'s folder stays as it was."""
    before = sorted(out.parent.iterdir())
    with pytest.raises(UserError) as caught:
        importing(source, out, **options)
    assert sorted(out.parent.iterdir()) == before
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def assert_tensors(folder, state, original):
    """Compare the tensors of a folder, under their authors' names, bit for bit."""
    files = folder.glob("model*.safetensors")
    tensors = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert "lm_head.weight" not in tensors
    found = original(tensors)
    assert found.keys() == state.keys() and len(found) == len(tensors)
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
