"""Every script says with --help what it does, and does nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("benchmarks", "scripts", "workshop", "docs/generate")


def modules():
    """Yield the Python files that can be run, as they are typed."""
    for place in PLACES:
        for file in sorted((ROOT / place).rglob("*.py")):
            if "__name__ ==" in file.read_text(encoding="utf-8"):
                name = file.relative_to(ROOT).with_suffix("")
                dotted = ".".join(name.parts).removesuffix(".__main__")
                yield ["-m", dotted] if place == "workshop" else [str(file)]


SCRIPTS = [[sys.executable, *line] for line in modules()]
SCRIPTS += [[str(file)] for file in sorted((ROOT / "scripts").glob("*.sh"))]


@pytest.mark.slow
@pytest.mark.parametrize("line", SCRIPTS, ids=lambda line: line[-1].removeprefix(f"{ROOT}/"))
def test_help_says_how_to_use_a_script_and_does_nothing(line, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    done = subprocess.run(
        [*line, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.lower().startswith("usage:") and not list(tmp_path.iterdir())


def test_every_script_is_done_by_a_test():
    """Those of `make gpu` are: tests/benchmarks/test_gpu.py does all parts in miniature."""
    files = [f for f in (ROOT / "tests").rglob("*.py") if f != Path(__file__)]
    text = "".join(f.read_text(encoding="utf-8") for f in [*files, ROOT / "benchmarks" / "gpu.py"])
    names = [line[-1].rpartition("/")[2] for line in SCRIPTS]
    assert names and [name for name in names if name not in text] == []
