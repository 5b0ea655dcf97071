"""Measure which share of a step on a CPU dropout takes: passes of 32 rows.

    OMP_NUM_THREADS=2 python benchmarks/dropout_share.py [COMMIT ...] [--repeats 3]
        [--shape minilm]

Passes forward and back without dropout, and with 0.1 in states and attention weights, take turns in
a process, and so do processes of the commits (default: HEAD). Their processor seconds count, since
other work may share the cores. Writes results/dropout_share.md.
"""

import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from datetime import date
from pathlib import Path
from statistics import median
from time import process_time

PASSES = 6
PAGE = """\
# What dropout costs on a CPU

{day}, {threads} threads, `python benchmarks/dropout_share.py`: passes forward and back in fp32, of
P-tuning v2 on the shape {shape} and 32 rows of `pocket_qa`, with and without dropout in turns.
Processor seconds are medians of {count} passes. The share is what dropout takes of a pass, in
percent: the median of {repeats} processes (lowest to highest).

| commit | s without dropout | s with 0.1 | share |
|---|---|---|---|
"""


def passes(model: str) -> list[tuple[float, float]]:
    """Return the processor seconds of passes without and with dropout, in turns."""
    import torch

    from ptrun.backbone.dropout import row_keys
    from ptrun.config.compose import compose_run
    from ptrun.readout.base import collate
    from ptrun.runs.examples import divide, split_of
    from ptrun.runs.plan import plan

    dropout = ["backbone.dropout=0.1", "backbone.attention_dropout=0.1"]
    planned = plan(compose_run(["task=pocket_qa", f"backbone.path={model}", *dropout]))
    method, engine = planned.build_method(), planned.engine
    engine.load(tuned=False)
    engine.place([method])
    features = method.encode(divide(method, split_of(planned)[0])[0].split.train[:32])
    for parameter in method.learned().values():
        parameter.requires_grad_(True)

    def seconds(keys: torch.Tensor | None) -> float:
        began = process_time()
        batch = collate(features, keys, torch.device("cpu"))
        loss = method.loss(engine.backbone.forward(method.inputs(batch)), batch)
        torch.autograd.backward(loss)
        return process_time() - began

    pairs = [(seconds(None), seconds(row_keys(1, step, range(32)))) for step in range(PASSES + 1)]
    return pairs[1:]  # the first is slow


def main() -> None:
    """Measure, and write the page."""
    if sys.argv[1:2] == ["--passes"]:
        print(json.dumps(passes(sys.argv[2])))
        return
    from peers import POCKET, SHAPES, model_folder
    from peers_page import spread
    from running import HERE, arguments

    parser = arguments(__doc__)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", default=["HEAD"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shape", default="minilm", choices=SHAPES)
    given = parser.parse_args()
    found: dict[str, list[list[tuple[float, float]]]] = {commit: [] for commit in given.commits}
    with tempfile.TemporaryDirectory() as folder:
        model = model_folder(given.shape, Namespace(tokenizer=POCKET), Path(folder))
        line = [sys.executable, __file__, "--passes", str(model)]
        for commit in found:
            unpack = (
                f"mkdir {folder}/{commit} && git archive {commit} | tar -x -C {folder}/{commit}"
            )
            subprocess.run(unpack, shell=True, check=True, cwd=HERE.parent)
        for commit in [*found] * given.repeats:
            env = {"OMP_WAIT_POLICY": "passive", "PYTHONPATH": f"{folder}/{commit}"}
            measured = subprocess.check_output(line, env={**os.environ, **env})
            found[commit].append(json.loads(measured))
    threads = os.environ.get("OMP_NUM_THREADS", os.cpu_count())
    page = PAGE.format(
        day=date.today(), threads=threads, count=given.repeats * PASSES, **vars(given)
    )
    for commit, processes in found.items():
        columns = zip(*(pair for pairs in processes for pair in pairs), strict=True)
        seconds = " | ".join(f"{median(column):.2f}" for column in columns)
        shares = [median(100 * (1 - plain / drops) for plain, drops in own) for own in processes]
        page += f"| {commit} | {seconds} | {spread(shares)} |\n"
    (given.out / "dropout_share.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
