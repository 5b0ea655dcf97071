"""The folder of an import on a disk that fills: path and cause, and nothing is left."""

import errno
import os

import pytest
from safetensors import SafetensorError

from ptrun.errors import UserError
from ptrun.hub.staging import staging

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), SafetensorError("I/O error (os error 28)")


@pytest.mark.parametrize("error", FULL, ids=["system", "safetensors"])
def test_a_disk_that_fills_is_named_and_nothing_is_left(tmp_path, error):
    out = tmp_path / "out"
    with pytest.raises(UserError, match="No space left on device") as raised, staging(out, 0):
        raise error
    assert str(raised.value).startswith(f"{out}: cannot be written")
    assert not list(tmp_path.iterdir())
