"""Try combinations on the disguised device: train, stop, resume to the result, predict.

python -m tests.cuda.grid                      those of cells.txt
python -m tests.cuda.grid --all --part 1/4     a quarter of all
python -m tests.cuda.grid --write FILE         a new cells.txt, from what make cuda-grid writes
"""

import argparse
import gc
import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.cuda import session

_STEPS_LEFT = 1  # of two, after the first was saved


def main() -> int:
    given = _parsed()
    if given.write:
        return _write(Path(given.write))
    session.start()
    from tests.cuda import cells

    import_module("transformers.models.bert.modeling_bert")
    gc.freeze()  # a run collects garbage; what was imported is none
    failed = 0
    with tempfile.TemporaryDirectory() as name, _file(given.json) as file:
        folder = Path(name)
        index, parts = (int(n) for n in given.part.split("/"))
        own = ((cell, None) for cell in cells.share(index, parts))
        chosen = islice(cells.every(folder), index - 1, None, parts) if given.all else own
        done = _done_before(given.json)
        for cell, refused in chosen:
            if given.only not in str(cell) or str(cell) in done:
                continue
            row = {"outcome": f"refused: {refused}"} if refused else tried(cell, folder)
            failed += row["outcome"] == "FAILED"
            print(json.dumps({"cell": str(cell), **row}), file=file, flush=True)
    return int(failed > 0)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="", help="a part of the names of combinations")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--json", help="a file for the lines; else they are printed")
    parser.add_argument("--write")
    return parser.parse_args()


@contextmanager
def _file(name: str | None) -> Iterator[Any]:
    if name is None:
        yield sys.stdout
        return
    with open(name, "a", encoding="utf-8") as opened:
        yield opened


def _done_before(name: str | None) -> set[str]:
    """Return the combinations that a file has already: an interrupted hour goes on."""
    file = Path(name) if name else None
    lines = file.read_text(encoding="utf-8").splitlines() if file and file.exists() else []
    return {json.loads(line)["cell"] for line in lines}


def tried(cell: Any, folder: Path) -> dict[str, Any]:
    from ptrun.errors import UserError

    began = time.perf_counter()
    try:
        row = _done(cell.overrides(folder))
    except UserError as error:  # refused for what only the built method knows
        row = {"outcome": f"refused: {str(error).splitlines()[0]}"}
    except Exception as error:
        row = {"outcome": "FAILED", "error": _told(error)}
    return {**row, "seconds": round(time.perf_counter() - began, 1)}


def _done(line: list[str]) -> dict[str, Any]:
    """Do a run in two processes' worth of steps, then predict; return what was counted."""
    from ptrun.api import load
    from ptrun.config.compose import compose_run
    from ptrun.runs.launch import launch
    from ptrun.training import graphs, stopping
    from tests.cuda.events import EVENTS, LIBRARY, ORDER, UPLOAD, WAIT

    graphs.SEEN = 1  # each pass is captured
    one = compose_run(line)
    with session.on_device():
        try:
            with patch.object(stopping, "received", lambda: signal.SIGTERM):
                done = launch(one)
        except stopping.Stopped:
            EVENTS.clear()
            done = launch(one)
    assert done.status == "finished", done.reason
    learns = done.learned_parameters["total"] > 0
    steps = EVENTS.entered["passes"]
    assert not learns or steps == _STEPS_LEFT, f"{steps} steps after the first was saved"
    own = one.outputs / one.name / done.run_id
    waits = EVENTS.count(WAIT, "passes", "update", "step")
    row = {
        "outcome": "pass",
        "waits": waits / max(1, steps),
        "uploads": EVENTS.count(UPLOAD, "passes", "update", "step") / max(1, steps),
        "passes": done.manifest.get("passes"),
        "open": sorted({e.what for e in EVENTS.seen if e.kind in (ORDER, LIBRARY)}),
    }
    with session.on_device():
        rows = _questions(one)
        answers = load(own, hardware="gpu").predict(rows)
    assert len(answers) == len(rows), f"{len(answers)} answers to {len(rows)} rows"
    return row


def _questions(one: Any) -> list[dict[str, Any]]:
    """Return two rows of the test split, as a file has them."""
    from ptrun.pocket.tasks import rows

    name = one.names["task"]
    if one.data_dir:
        (file,) = Path(one.data_dir).rglob(f"{name}/test.jsonl")
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()[:2]]
    member = "pocket_ner" if name == "pocket_multi" else name
    return [{**row, "task": member} for row in rows(member, "test")[:2]]


def _told(error: Exception) -> str:
    """Return an error with the innermost lines of ptrun."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/ptrun/" in f.filename]
    places = [f"{f.filename.split('/ptrun/')[-1]}:{f.lineno}" for f in frames[-3:]]
    return f"{type(error).__name__}: {str(error).splitlines()[:1]} at {' '.join(places)}"


def _write(file: Path) -> int:
    """Write the covering combinations among those that pass."""
    from tests.cuda import cells

    rows = json.loads(file.read_text(encoding="utf-8"))["combinations"]["tried"]
    passed = [cells.Cell(*row["cell"].split(" | ")) for row in rows if row["outcome"] == "pass"]
    lines = ["# method, read-out | backbone | kind of task; python -m tests.cuda.grid --write"]
    lines += map(str, cells.covering(passed))
    cells.LISTED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
