"""`run.yaml`: a file that lost a part is refused, not filled with defaults."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder import request


@pytest.mark.parametrize(("key", "told"), [("  train:", "train lost"), ("  setting:", "setting")])
def test_what_is_cut_short_is_refused(tmp_path, key, told):
    composed = compose_run(["seed=7"])
    request.write(tmp_path, composed)
    kept = request.read(tmp_path)
    assert kept is not None and kept.config["seed"] == 7 and "tracking" not in kept.config
    file = tmp_path / request.FILE
    text = file.read_text()
    file.write_text(text[: text.rindex("\n" + key) + 1])
    with pytest.raises(UserError, match=f"run.yaml: damaged .*{told}"):
        request.read(tmp_path)
