"""A worker that trains nothing: it writes to `journal` what it was asked for, and when.

`seed` decides how a run ends: 13 fails, 17 kills the process, 19 is busy. A seed above 100 needs
that of its hundreds: 1301 needs 13.
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from ptrun.hardware import processes

FAR = {13: "failed", 19: "busy"}


def facts(index, composed):
    seed, shares = composed.config["seed"], composed.names["method"] != "fine_tuning"
    folder = composed.outputs / composed.name / f"run-{seed}"
    shape = composed.names["method"] if shares else None
    return {"index": index, "folder": str(folder), "shape": shape} | {
        "most": 8, "refused": "no such row" if seed == 11 else None,
        "after": needed(composed, seed // 100) if seed > 100 else {},
    }  # fmt: skip


def needed(composed, seed):
    other = replace(composed, config={**composed.config, "seed": seed})
    return {str(composed.outputs / composed.name / f"run-{seed}"): processes.text_of(other)}


def write(event, seeds):
    row = {"event": event, "seeds": seeds, "at": time.monotonic(), "pid": os.getpid()}
    row |= {
        "device": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "threads": os.environ["OMP_NUM_THREADS"],
    }
    with Path(os.environ["JOURNAL"]).open("a") as opened:
        opened.write(json.dumps(row) + "\n")


for line in sys.stdin:
    request = json.loads(line)
    asked = request.get("plan") or request["run"]
    runs = {int(index): processes.read_text(text) for index, text in asked.items()}
    if "plan" in request:
        if "DIES_PLANNING" in os.environ:
            sys.exit(7)
        answer = [facts(index, composed) for index, composed in runs.items()]
    else:
        seeds = [composed.config["seed"] for composed in runs.values()]
        write("start", seeds)
        Path(request["log"]).write_text("a log\nits last line\n")
        if 17 in seeds:
            os.kill(os.getpid(), 9)
        time.sleep(float(os.environ.get("SECONDS_A_RUN", "0.05")))
        answer = []
        for index, composed in runs.items():
            kind = FAR.get(composed.config["seed"], "finished")
            answer.append({"index": index, "kind": kind, "text": kind})
            folder = Path(facts(index, composed)["folder"])
            (folder / "failure.json").unlink(missing_ok=True)
        write("end", seeds)
    print(json.dumps(answer), flush=True)
