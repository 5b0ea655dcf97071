"""Runs whose passes are replayed beside runs whose passes are not, on the disguised device.

python -m tests.cuda.replayed CASE ...      prints `ok` or an error for each, as one JSON object
"""

import json
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from unittest.mock import patch

from tests.cuda import session

SMALL = ("task=pocket_sentiment", "train.batch_size=8", "train.max_steps=12", "train.eval_every=6")
SMALL += ("+task.source.rows={train:64,validation:16,test:3}", "hardware.precision=fp32")
DROPS = ("backbone.dropout=0.1", "backbone.attention_dropout=0.1")
PREFIX = (*SMALL, *DROPS, "method=ptuning_v2", "method.length=4")
LORA = (*SMALL, *DROPS, "method=lora", "method.dropout=0.2")
GPT2 = (*SMALL, *DROPS, "backbone=pocket_gpt2", "method=prompt_tuning", "method.length=5")


def trained(line, folder, *, most=6, lines=None, hardware="gpu", stop=False):
    """Train runs together; return each one's losses and norms, prompt, and counts of passes."""
    from ptrun.config.compose import compose_run
    from ptrun.runs.launch import launch_together
    from ptrun.runs.plan import plan
    from ptrun.training import graphs, stopping

    common = (*line, f"outputs={folder}", f"hardware={hardware}")
    graphs.MOST = most
    with session.on_device():
        plans = [plan(compose_run([*common, *more])) for more in lines or [()]]
        if stop:
            received = [None] * 5 + [signal.SIGTERM]
            with patch.object(stopping, "received", lambda: received.pop(0) if received else None):
                try:
                    launch_together(plans)
                except stopping.Stopped:
                    return None
        ends = launch_together(plans)
    return [result(planned.folder, end) for planned, end in zip(plans, ends, strict=True)]


def result(folder, end):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    losses = [(row["loss"], row["norm"]) for row in rows if row["event"] == "step"]
    return losses, end.manifest["prompt"], end.manifest.get("passes", {})


def check_equal(line, folder, lines=None, least=6):
    replayed = trained(line, folder / "replayed", lines=lines)
    launched = trained(line, folder / "launched", lines=lines, most=0)
    for one, other in zip(replayed, launched, strict=True):
        assert one[:2] == other[:2], (one, other)
        assert one[2]["replayed"] >= least and "reason" not in one[2], one[2]
        assert other[2]["replayed"] == 0 and other[2]["not_replayed"] > 9, other[2]
    return replayed


def case_prefix(folder):
    check_equal(PREFIX, folder)


def case_decoder(folder):
    check_equal(GPT2, folder)


def case_targets_of_any_number(folder):
    """Tags, spans and written answers: passes of one size differ in what is read."""
    for task, line in (("pocket_ner", PREFIX), ("pocket_qa", LORA), ("pocket_writing", GPT2)):
        readout = ("readout=writing",) if line is GPT2 else ()
        check_equal((*line, f"task={task}", *readout), folder / task, least=2)


def case_several_parts_of_a_step(folder):
    check_equal((*LORA, "hardware.token_budget=64"), folder)


def case_adapters(folder):
    check_equal((*SMALL, *DROPS, "method=adapter"), folder)


def case_runs_that_share_passes(folder):
    """The second one ends first; each equals the run alone to rounding. LoRA's rows are divided."""
    ends = [("seed=1",), ("seed=2", "train.max_steps=6"), ("seed=3", "train.lr=0.01")]
    for name, line in (("prefix", PREFIX), ("lora", (*LORA, "hardware.token_budget=160"))):
        shared = check_equal(line, folder / name, lines=ends)
        for own, (losses, *_) in zip(ends, shared, strict=True):
            ((alone, *_),) = trained((*line, *own), folder / name / "alone")
            close(alone, losses)


def case_the_sizes_of_a_cpu(folder):
    for name, line in (("prefix", PREFIX), ("lora", LORA), ("gpt2", GPT2)):
        ((here, *_),) = trained(line, folder / name / "gpu")
        ((there, *_),) = trained(line, folder / name / "cpu", hardware="cpu")
        close(here, there)


def case_a_resumed_run(folder):
    ((losses, prompt, _),) = trained(PREFIX, folder / "whole")
    assert trained(PREFIX, folder / "cut", stop=True) is None
    ((_, again, _),) = trained(PREFIX, folder / "cut")
    assert prompt == again and len(losses) == 12


def case_a_device_without_graphs(folder):
    import torch

    with patch.object(torch.cuda, "CUDAGraph", side_effect=RuntimeError("no graphs here")):
        (broken,) = trained(PREFIX, folder / "broken")
    (launched,) = trained(PREFIX, folder / "launched", most=0)
    assert broken[:2] == launched[:2] and broken[2]["reason"] == "no graphs here"


def close(losses, others):
    far = max(
        abs(a - b) / b
        for one, other in zip(losses, others, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    assert far <= 1e-5, far


def main():
    session.start()
    cases = {n.removeprefix("case_"): c for n, c in globals().items() if n.startswith("case_")}
    found = {}
    for name in sys.argv[1:] or cases:
        with tempfile.TemporaryDirectory() as folder:
            try:
                cases[name](Path(folder))
                found[name] = "ok"
            except Exception:
                found[name] = traceback.format_exc(limit=-4)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
