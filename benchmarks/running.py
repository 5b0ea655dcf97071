"""What benchmarks share: arguments, commands of ptrun, results of runs, rows, files of figures."""

import argparse
import gzip
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PTRUN = [sys.executable, "-m", "ptrun"]


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser of a script, whose help is its docstring."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=shown)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser


def ptrun(*typed: str) -> None:
    """Do a command; it must succeed, and its output is dropped."""
    subprocess.run([*PTRUN, *typed], check=True, stdout=subprocess.DEVNULL)


def results(folder: Path) -> list[dict]:
    """Return the results of all runs below a folder, by seed."""
    found = [json.loads(file.read_text()) for file in folder.rglob("result.json")]
    return sorted(found, key=lambda run: run["seed"])


def masks(rows: Iterable[dict]) -> str:
    """Return the rules of the dropout masks of stored rows; those without a number have rule 1."""
    return f"masks {', '.join(sorted({str(row.get('masks', 1)) for row in rows}))}"


def lines(data: Path, name: str) -> list[dict]:
    """Return the rows of DIR/TASK/SPLIT.jsonl or .jsonl.gz, where NAME is TASK/SPLIT."""
    file = sorted((data / name).parent.glob(f"{(data / name).name}.jsonl*"))[0]
    text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def kept(file: Path, otherwise: Any) -> Any:
    """Return the figures of a file; others if it is not there."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else otherwise


def keep(file: Path, figures: object) -> None:
    """Write figures into a file."""
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
