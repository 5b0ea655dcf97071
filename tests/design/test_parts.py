"""The core does not know the parts that join it by entry points, and works without them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ptrun.testing import check_command

ROOT = Path(__file__).parents[2]
PARTS = ("papers", "serve")
TESTS = ("tests/command", "tests/cli", "tests/api", "tests/config")
"""A selection of the core's tests; those of a part are in `tests/PART`."""


def test_the_command_of_a_part_passes_the_check_of_commands():
    check_command("serve", "RUN", run=False)


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Return the environment of a checkout without the parts, and its folder."""
    folder = tmp_path_factory.mktemp("core")
    for name in ("ptrun", "conf", "tests", "docs"):
        parts = [str(ROOT / name / part) for part in PARTS]

        def left_out(place, names, parts=parts):
            return [n for n in names if n == "__pycache__" or os.path.join(place, n) in parts]

        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for file in ("pyproject.toml", "README.md", "mkdocs.yml"):
        shutil.copy(ROOT / file, folder)
    return folder, {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.slow
def test_the_core_passes_its_tests_without_the_parts(core):
    folder, environment = core
    line = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-m", "not slow", *TESTS]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.slow
def test_a_command_whose_part_is_absent_is_refused_by_name(core):
    folder, environment = core
    line = [sys.executable, "-m", "ptrun"]
    listed = subprocess.run([*line, "--help"], cwd=folder, env=environment, capture_output=True)
    assert listed.returncode == 0 and b"  serve " not in listed.stdout
    typed = subprocess.run(
        [*line, "serve", "RUN"], cwd=folder, env=environment, capture_output=True
    )
    assert typed.returncode == 1 and b"pip install --force-reinstall ptrun" in typed.stderr
