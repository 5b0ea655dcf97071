"""The first two parts of the golden list: ids of 60 cells, and digests of the prompts they train.

A cell is a line of `cells.txt`: method and read-out, shipped model, kind of task. It trains two
steps on a few rows in fp32, on one thread.
"""

import hashlib
from functools import cache
from pathlib import Path

import torch

from tests.cuda.cells import Cell

LISTED = Path(__file__).with_name("cells.txt")


def cells():
    return [Cell(*line.split(" | ")) for line in LISTED.read_text(encoding="utf-8").splitlines()]


def command_line(cell, folder):
    replaced = {"hardware=gpu": "hardware=cpu"}
    line = [replaced.get(key, key) for key in cell.overrides(folder)]
    return [
        *(key for key in line if not key.startswith("hardware.prec")),
        "hardware.precision=fp32",
    ]


def run_id(cell, folder):
    """Return the id of a cell's run; nothing is trained."""
    from ptrun.config.compose import compose_run
    from ptrun.runs.plan import plan

    return plan(compose_run(command_line(cell, folder))).run_id


def prompt(cell, folder):
    """Train a cell; return the digest of what it learned, and the norm of all its tensors.

    Another processor rounds in another way: then the digest differs, and the norm agrees to 1e-3.
    """
    from ptrun.config.compose import compose_run
    from ptrun.folder.digest import PROMPT
    from ptrun.folder.tensors import read
    from ptrun.runs.launch import launch

    torch.set_num_threads(1)
    one = compose_run([*command_line(cell, folder), "keep=weights"])
    done = launch(one)
    assert done.status == "finished", f"{cell}: {done.reason}"
    tensors, _ = read(one.outputs / one.name / done.run_id / PROMPT, "")
    hashed = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        hashed.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data)
    norm = float(sum(t.double().square().sum() for t in tensors.values())) ** 0.5
    return {"digest": hashed.hexdigest()[:16], "norm": float(f"{norm:.6g}")}


@cache
def processor():
    """Return what decides how this machine rounds: vendor, instructions, and torch's version."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    vendor = next((line.split(":")[1].strip() for line in lines if "vendor_id" in line), "?")
    return f"{vendor} {torch.backends.cpu.get_cpu_capability()} torch {torch.__version__}"
