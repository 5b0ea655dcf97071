"""A test without its package is skipped by hand, and fails where `make` installs all packages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiers

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("strict", "platform", "ends"),
    [("1", "linux", "Failed"), ("", "linux", "Skipped"), ("1", "darwin", "Skipped")],
)
def test_a_missing_package_fails_where_all_are_installed(monkeypatch, strict, platform, ends):
    monkeypatch.setenv("PTRUN_TEST_PACKAGES", strict)
    monkeypatch.setattr(tiers.sys, "platform", platform)
    tiers.package("pytest")
    with pytest.raises(BaseException, match="package: no_such is not installed") as caught:
        tiers.package("no_such")
    assert type(caught.value).__name__ == ends


def test_no_test_skips_for_a_package_by_itself():
    own = re.compile("importor" + r"skip|skipif\(.*find_" + "spec")
    files = (ROOT / "tests").rglob("*.py")
    assert not [file.name for file in files if own.search(file.read_text(encoding="utf-8"))]


@pytest.mark.slow
def test_what_is_skipped_is_counted_by_kind(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary\n")
    (tmp_path / "test_own.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('name', ['a', 'b'])\n"
        "def test_own(name):\n    pytest.skip(f'shared data: no {name}')\n"
    )
    line = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert "2 skipped: shared data" in done.stdout, done.stdout
