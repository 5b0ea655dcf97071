"""What benchmarks share: commands of ptrun, the results of runs, and files of figures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PTRUN = [sys.executable, "-m", "ptrun"]


def ptrun(*typed: str) -> None:
    """Do a command; it must succeed, and its output is dropped."""
    subprocess.run([*PTRUN, *typed], check=True, stdout=subprocess.DEVNULL)


def results(folder: Path) -> list[dict]:
    """Return the results of all runs below a folder, by seed."""
    found = [json.loads(file.read_text()) for file in folder.rglob("result.json")]
    return sorted(found, key=lambda run: run["seed"])


def kept(file: Path, otherwise: Any) -> Any:
    """Return the figures of a file; others if it is not there."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else otherwise


def keep(file: Path, figures: object) -> None:
    """Write figures into a file."""
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
