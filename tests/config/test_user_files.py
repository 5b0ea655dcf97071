"""Configuration files of the user: what is no YAML, or too much of it, is refused at once."""

import pytest

from ptrun.config.user_files import check_user_files
from ptrun.errors import UserError
from tests.folder.test_request import BOMB

ODD = {
    "a bomb of aliases": (BOMB.encode(), "more than 100,000 values"),
    "an alias of itself": (b"a: &a [*a]\n", "more than 100,000 values"),
    "bytes": (b"\xff\x00\x01", "not readable YAML"),
    "depth": (b"[" * 5_000, "not readable YAML"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_file_that_is_no_configuration_is_named(tmp_path, name):
    content, told = ODD[name]
    file = tmp_path / "task" / "mine.yaml"
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"mine.yaml is not readable YAML: .*{told}|{told}"):
        check_user_files(tmp_path)


def test_a_variable_of_the_environment_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "mine.yaml").write_text("name: x\nmore: [{a: 'x/${oc.env:HOME}'}]\n")
    with pytest.raises(
        UserError, match=r"mine.yaml sets 'x/\$\{oc.env:HOME\}', which .* may not do"
    ):
        check_user_files(tmp_path)
    monkeypatch.setenv("PTRUN_ALLOW_CODE", "true")
    check_user_files(tmp_path)


def test_aliases_that_stay_small_are_read(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "mine.yaml").write_text("a: &a [x, y]\nb: *a\nc: [*a, *a]\n")
    check_user_files(tmp_path)
