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
    "a variable of the environment": lambda text: text.replace(
        "name: runs", "name: ${oc.env:HOME}"
    ),
    "no outputs": lambda text: text.replace("outputs: outputs", "outputs: null"),
    "a list as a name": lambda text: text.replace("method: ptuning_v2", "method: [ptuning_v2]", 1),
    "an alias of itself": lambda text: "a: &a [*a]\n" + text,
    "a bomb": lambda text: BOMB + text,
    "no object": lambda text: "[1, 2]",
    "nothing": lambda text: "",
    "not YAML": lambda text: "a: [",
    "deep": lambda text: "[" * 5_000,
}


@pytest.mark.parametrize("name", ODD)
def test_odd_files_are_refused_at_once(tmp_path, name):
    request.write(tmp_path, compose_run([]))
    file = tmp_path / request.FILE
    text = file.read_text()
    file.write_text(ODD[name](text))
    assert file.read_text() != text
    with pytest.raises(UserError, match=r"run.yaml: damaged"):
        request.read(tmp_path)
