"""Every script says with --help what it does, and does nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("benchmarks", "scripts", "workshop", "docs/generate")
ASK = """\
import contextlib, io, json, runpy, sys
answers = {}
for script in sys.argv[1:]:
    sys.argv, said, code = [script, "--help"], io.StringIO(), None
    sys.path[0] = script.rpartition("/")[0]
    try:
        with contextlib.redirect_stdout(said):
            (runpy.run_path if "/" in script else runpy.run_module)(script, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    answers[script] = [code or 0, said.getvalue()[:6].lower()]
print(json.dumps(answers))
"""


def modules():
    """Yield the Python files that can be run, as they are typed: a module of the workshop."""
    for place in PLACES:
        for file in sorted((ROOT / place).rglob("*.py")):
            if "__name__ ==" in file.read_text(encoding="utf-8"):
                name = file.relative_to(ROOT).with_suffix("")
                dotted = ".".join(name.parts).removesuffix(".__main__")
                yield dotted if place == "workshop" else str(file)


@pytest.mark.slow
def test_help_says_how_to_use_a_script_and_does_nothing(tmp_path, monkeypatch):
    """In one process: each of them imports torch."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    line, keys = [sys.executable, "-c", ASK, *modules()], {"cwd": tmp_path, "timeout": 300}
    done = subprocess.run(line, capture_output=True, text=True, check=True, **keys)
    answers = json.loads(done.stdout.splitlines()[-1])
    wrong = {script: said for script, said in answers.items() if said != [0, "usage:"]}
    assert answers and wrong == {}
    for script in (ROOT / "scripts").glob("*.sh"):
        done = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
        assert done.stdout.lower().startswith("usage:")
    assert not list(tmp_path.iterdir())


def test_every_script_is_done_by_a_test():
    """Those of `make gpu` are: tests/benchmarks/test_gpu.py does all parts in miniature."""
    files = [f for f in (ROOT / "tests").rglob("*.py") if f != Path(__file__)]
    text = "".join(f.read_text(encoding="utf-8") for f in [*files, ROOT / "benchmarks" / "gpu.py"])
    scripts = [*modules(), *map(str, (ROOT / "scripts").glob("*.sh"))]
    names = [script.rpartition("/")[2] for script in scripts]
    assert names and [name for name in names if name not in text] == []
