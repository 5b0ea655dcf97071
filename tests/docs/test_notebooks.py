"""The notebooks of examples/ run from top to bottom, and are kept without output."""

import json
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def cells(file):
    return json.loads(file.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_a_notebook_is_kept_without_output_and_compiles(file):
    code = [cell for cell in cells(file) if cell["cell_type"] == "code"]
    assert len(code) >= 4
    for cell in code:
        assert cell["outputs"] == [] and cell["execution_count"] is None
        compile("".join(cell["source"]), file.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda f: f.stem)
def test_a_notebook_runs(file, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    code = ["".join(cell["source"]) for cell in cells(file) if cell["cell_type"] == "code"]
    (tmp_path / "notebook.py").write_text("\n\n".join(code))
    line = [sys.executable, "notebook.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
