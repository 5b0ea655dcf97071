"""The same losses, norms and tensors however rows and model are shared out over processes."""

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ptrun.errors import UserError
from ptrun.training.optim import TorchStepper
from tests.hardware.layouts import INTERRUPTED, LAYOUTS, PLAIN, cases
from tests.run_folders import assert_same, rows
from tests.tiers import package
from workshop.drill.warm import RANKS

package("deepspeed")

LOSS, PROMPT, ALL, NORM = 1e-5, 1e-6, 5e-6, 1e-6
"""Largest differences to one process in fp32: absolute; relative of the first step's norm.

Later norms are of parameters that rounding has moved."""


@pytest.fixture
def table(tmp_path):
    dice, file = random.Random(1), tmp_path / "table.csv"
    words = ["the", "a", "film", "story", "was", "is", "not", "very", "good", "bad", "slow"]
    rows = [
        f"{' '.join(dice.choices(words, k=dice.randint(3, 12)))},{dice.choice(['yes', 'no'])}"
        for _ in range(30)
    ]
    file.write_text("\n".join(["text,label", *rows]) + "\n")
    return file


def differences(plain, other):
    """Return how far apart two runs are: in losses, norms and learned tensors."""
    pairs = list(zip(rows(plain), rows(other), strict=True))
    assert len(pairs) == 6
    mine, theirs = (load_file(folder / "prompt.safetensors") for folder in (plain, other))
    assert {k: v.shape for k, v in mine.items()} == {k: v.shape for k, v in theirs.items()}
    return {
        "loss": max(abs(a["loss"] - b["loss"]) for a, b in pairs),
        "norm": abs(pairs[0][0]["norm"] / pairs[0][1]["norm"] - 1),
        "tensors": max(float((mine[k] - theirs[k]).abs().max()) for k in mine),
    }


@pytest.mark.slow
def test_ranks_learn_what_one_process_learns(tmp_path, table, warm):
    """One test, since starting ranks is what takes time."""
    out = tmp_path / "out"
    line = ["-m", "tests.hardware.layouts", str(out), str(table)]
    with warm.start(line, Path(__file__).parents[2], imports=RANKS, seconds=3600) as done:
        assert done.wait() == 0, done.err[-4000:]
    for layout in LAYOUTS:
        for case in cases(layout):
            check(f"{layout} {case}", only(out / f"{PLAIN}-{case}"), only(out / f"{layout}-{case}"))
    plain = torch.load(out / f"gradients-{PLAIN}.pt")
    for layout in ("tp2", "tp4"):
        check_gradients(plain, torch.load(out / f"gradients-{layout}.pt"))
    for case in INTERRUPTED:  # a run whose second rank was killed goes on bit for bit
        whole, resumed = only(out / f"whole-{case}"), only(out / f"resumed-{case}")
        assert_same(whole, resumed)
        assert {f.name for f in whole.iterdir()} == {f.name for f in resumed.iterdir()}
    for rank in range(2):
        check_refused(json.loads((out / f"refused-{rank}.json").read_text()))
        assert max(json.loads((out / f"idle-{rank}.json").read_text())) < 1e-6
        assert json.loads((out / f"half-{rank}.json").read_text()) == 0.0  # None: nothing ran out


def only(folder):
    (found,) = folder.iterdir()
    return found


def check_gradients(plain, divided):
    """Each is within 1e-5 of the largest of its step; a small one within 1e-3 of its own.

    A tensor whose gradient is zero in exact numbers has only rounding.
    """
    assert len(divided) >= 12
    for name, step in divided.items():
        largest = max(float(tensor.abs().max()) for tensor in plain[name].values())
        for tensor, value in step.items():
            far = float((value - plain[name][tensor]).abs().max())
            own = float(plain[name][tensor].abs().max())
            allowed = min(1e-5 * largest, max(1e-3 * own, 1e-6 * largest))
            assert far < allowed, (name, tensor, far, largest)


def check_refused(told):
    assert "PeftMethod replaces maps of the backbone, which are divided" in told["peft"]
    assert "hardware.precision=bf16 or fp32" in told["fp16"]
    assert "a launcher started 2 ranks, but the model is divided over 3" in told["three"]
    assert "rank 1 read other rows than rank 0 at step 5" in told["rows"]


def check(name, plain, other):
    one, many = (json.loads((f / "result.json").read_text()) for f in (plain, other))
    assert one["learned_parameters"] == many["learned_parameters"], name
    if name.endswith("bf16"):  # other roundings than autocast's: it learns, and is whole
        losses = [row["loss"] for row in rows(other)]
        assert abs(losses[0] - rows(plain)[0]["loss"]) < 0.02 and losses[-1] < losses[0], name
        return
    found = differences(plain, other)
    allowed = {"loss": LOSS, "norm": NORM, "tensors": ALL if name.endswith("all") else PROMPT}
    assert all(found[key] <= allowed[key] for key in allowed), (name, found)


STOPPED = """\
import signal, sys
from unittest.mock import patch
from ptrun.config.compose import compose_run
from ptrun.runs.launch import launch
from ptrun.training import stopping
line, other = sys.argv[1:-1], sys.argv[-1]
try:
    with patch.object(stopping, "received", lambda: signal.SIGTERM):
        launch(compose_run(line))
except stopping.Stopped:
    again = [*line, "hardware=zero1", "hardware.device=cpu"] if other == "zero1" else line
    launch(compose_run(again))
"""


@pytest.mark.slow
def test_a_state_of_plain_torch_resumes_under_deepspeed(tmp_path, table, warm):
    """Out of memory on one GPU, a user types hardware=zero1: the run id is the same."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    for other in ("cpu", "zero1"):
        line = ["task=csv", f"task.train={table}", "task.text=text", "task.label=label"]
        line += ["method=ptuning_v2", "method.length=4", "train.max_steps=6", "train.batch_size=8"]
        line += [f"outputs={tmp_path / other}"]
        env = alone | {"MASTER_PORT": "0"} if other == "zero1" else {}
        program = ["-c", STOPPED, *line, other]
        with warm.start(program, tmp_path, env, imports=RANKS, seconds=300) as done:
            assert done.wait() == 0, done.err
    plain, under = (next((tmp_path / n).rglob("result.json")).parent for n in ("cpu", "zero1"))
    assert plain.name == under.name
    found = differences(plain, under)
    assert found["loss"] < LOSS and found["norm"] < NORM and found["tensors"] < PROMPT


def test_a_state_that_is_divided_over_ranks_needs_them_again():
    weight = torch.nn.Parameter(torch.zeros(2))
    stepper = TorchStepper(torch.optim.AdamW([weight]), {"w": weight})
    with pytest.raises(UserError, match="divided over ranks, and a single process cannot resume"):
        stepper.resume({"exp_avg.0": torch.zeros(1)}, {"zero_updates": [1], "step": 1})
