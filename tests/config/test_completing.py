"""The ends of a command line: nothing that the shell would read as a command."""

import pytest

from ptrun.command.completion import completed


@pytest.mark.parametrize(
    "name", ["$(touch own)", "`touch own`", "a\nb", "a;b", "a b", "a\x1b[2J", "a'b", "a*", "é"]
)
def test_names_that_a_shell_would_read_are_left_out(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for folder in (f"runs/{name}", "runs/plain-s1~2"):
        (tmp_path / "outputs" / folder).mkdir(parents=True)
        (tmp_path / "outputs" / folder / "result.json").touch()
    found = completed(["predict", "outputs/"], [], [])
    assert found == ["outputs/runs/plain-s1~2"]


def test_options_of_a_project_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ptrun_conf" / "method").mkdir(parents=True)
    for name in ("mine", "$(own)"):
        (tmp_path / "ptrun_conf" / "method" / f"{name}.yaml").write_text("{}")
    assert "method=mine" in completed(["method="], [], [])
    assert not [word for word in completed(["method="], [], []) if "$" in word]
