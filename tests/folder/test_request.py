"""`run.yaml`: a file that lost a part is refused, not filled with defaults."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder import request, result
from tests.runs.test_store import outcome


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


@pytest.mark.parametrize("key", ["tracking", "cluster", "sweep", "keep"])
def test_what_is_never_written_is_not_read(tmp_path, key):
    """A tracker of somebody else would get the user's key."""
    request.write(tmp_path, compose_run(["seed=7"]))
    file = tmp_path / request.FILE
    planted = f"config:\n  {key}: {{wandb: {{project: theirs}}}}"
    file.write_text(file.read_text().replace("config:", planted, 1))
    assert planted in file.read_text() and key not in request.read(tmp_path).config


def test_what_was_edited_after_the_end_is_refused(tmp_path):
    request.write(tmp_path, compose_run(["seed=7"]))
    result.write(tmp_path, outcome())
    assert request.read(tmp_path).config["seed"] == 7
    file = tmp_path / request.FILE
    file.write_text(file.read_text().replace("seed: 7", "seed: 8"))
    with pytest.raises(UserError, match=r"run.yaml: damaged or edited"):
        request.read(tmp_path)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{own}: &{own} [{', '.join([f'*{other}'] * 9)}]\n"
    for other, own in zip("abcdefgh", "bcdefghi", strict=True)
)
ODD = {
    "a variable of the environment": ("name: runs", "name: ${oc.env:HOME}"),
    "no outputs": ("outputs: outputs", "outputs: null"),
    "a list as a name": ("method: ptuning_v2", "method: [ptuning_v2]"),
    "an alias of itself": ("", "a: &a [*a]\n"),
    "a bomb": ("", BOMB),
    "no object": (None, "[1, 2]"),
    "nothing": (None, ""),
    "not YAML": (None, "a: ["),
    "deep": (None, "[" * 5_000),
}
"""What is written in the place of what, or of the whole file."""


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_refused_at_once(tmp_path, name):
    request.write(tmp_path, compose_run([]))
    file = tmp_path / request.FILE
    text = file.read_text()
    old, new = ODD[name]
    file.write_text(new if old is None else text.replace(old, new, 1))
    assert file.read_text() != text
    with pytest.raises(UserError, match=r"run.yaml: damaged"):
        request.read(tmp_path)
