"""The same short runs on one process and on several: `python -m tests.hardware.layouts OUT TABLE`.

What a run needs is imported once; every rank of every layout is a fork.
"""

import gc
import json
import logging
import os
import signal
import socket
import sys
from importlib import import_module
from pathlib import Path

PLAIN = "plain"
LAYOUTS = {"dp2": (2, 1), "tp2": (2, 2), "tp2_dp2": (4, 2), "tp4": (4, 4)}
"""Processes, and how many of them hold one model together."""

CASES = {
    "t5-prompt": ["backbone=pocket_t5", "method=prompt_tuning", "method.length=5"],
    "t5-prefix": ["backbone=pocket_t5", "method=ptuning_v2", "method.length=5"],
    "t5-all": ["backbone=pocket_t5", "method=fine_tuning"],
    "bert-prompt": ["backbone=pocket_bert", "method=prompt_tuning", "method.length=5"],
    "bert-all": ["backbone=pocket_bert", "method=fine_tuning"],
    "bert-bf16": ["backbone=pocket_bert", "method=fine_tuning", "hardware.precision=bf16"],
    "gpt2-prompt": ["backbone=pocket_gpt2", "method=prompt_tuning", "method.length=5"],
    "gpt2-all": ["backbone=pocket_gpt2", "method=fine_tuning"],
}
_FEW = {"t5-prompt", "t5-all", "bert-prompt", "bert-all"}
LEFT_OUT = {"tp2_dp2": CASES.keys() - _FEW, "tp4": _FEW - {"t5-all"} | {"bert-bf16", "t5-prefix"}}
"""Four ranks on two cores are slow: there each model is tried, tuned or not."""

INTERRUPTED = ("dp2-bert-all", "tp2-t5-prompt")
"""Layout and case of runs whose second rank is killed: a state in parts, and a whole one."""

# A key's bias moves no loss, so its gradient is rounding, which AdamW would make a whole step.
SHARED = ["hardware.precision=fp32", "train.max_steps=10", "train.batch_size=8", "train.lr=3e-4"]
SHARED += [
    "train.eval_every=10",
    "train.eps=1e-5",
    "task=csv",
    "task.text=text",
    "task.label=label",
]
IMPORTED = ("ptrun.run", "ptrun.hardware.deepspeed_engine", "ptrun.backbone.divided", "deepspeed")
IMPORTED += ("transformers.models.bert.modeling_bert", "transformers.models.t5.modeling_t5")
IMPORTED += ("transformers.models.gpt2.modeling_gpt2", "deepspeed.module_inject.auto_tp")


def overrides(layout, case, out, table):
    """Return what a run of one case in one layout is typed as."""
    hardware = ["hardware=cpu"]
    if layout != PLAIN:
        held = LAYOUTS[layout][1]
        hardware = ["hardware=zero1", "hardware.device=cpu", f"hardware.model_parallel={held}"]
        hardware += [f"hardware.token_budget={64 if layout == 'dp2' else 2048}"]
        hardware += [f"hardware.checkpointing={layout == 'tp4'}"]
    own = [f"outputs={out}", f"name={layout}-{case}", f"task.train={table}"]
    return [*hardware, *SHARED, *own, *CASES[case]]


def cases(layout):
    """Return what a layout runs."""
    return [case for case in CASES if case not in LEFT_OUT.get(layout, ())]


def work(layout, out, table):
    """Do every case, in the process that this one is among."""
    from ptrun.config.compose import compose_run
    from ptrun.run import run

    logging.getLogger("ptrun").setLevel(logging.ERROR)
    for case in cases(layout):
        run(compose_run(overrides(layout, case, out, table)))
    if layout == "tp2":
        file = Path(out, f"refused-{os.environ['RANK']}.json")
        file.write_text(json.dumps(refused(out, table)))


def refused(out, table):
    """Return what two ranks that hold one model are told, by what they try."""
    from ptrun.config.compose import compose_run
    from ptrun.errors import RunFailed, UserError
    from ptrun.hardware.ranks import joined
    from ptrun.run import run

    own = [f"outputs={out}", *SHARED, f"task.train={table}"]
    own += ["hardware=zero1", "hardware.device=cpu", "hardware.model_parallel=2"]
    tried = {
        "lora": lambda: run(compose_run([*own, "method=lora"])),
        "fp16": lambda: run(compose_run([*own, "hardware.precision=fp16"])),
        "three": lambda: run(compose_run([*own, "hardware.model_parallel=3"])),
        "rows": lambda: joined(2, "cpu").check_same(int(os.environ["RANK"]), 5),
    }
    told = {}
    for name, attempt in tried.items():
        try:
            attempt()
        except (UserError, RunFailed) as error:
            told[name] = str(error)
    return told


def interrupted(name, out, table):
    """Go through the tuned and the frozen run that are cut short; the second rank may be killed."""
    from ptrun.config.compose import compose_run
    from ptrun.run import run
    from ptrun.shared_store import SharedStore

    logging.getLogger("ptrun").setLevel(logging.ERROR)
    save, saves = SharedStore.save, []

    def fatal(*given):
        saves.append(given)
        if len(saves) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        save(*given)

    if name.startswith("killed") and os.environ["RANK"] == "1":
        SharedStore.save = fatal
    layout, case = name.split("-", 1)[1].split("-", 1)
    more = [f"name={name.replace('killed', 'resumed')}", "train.eval_every=3"]
    run(compose_run([*overrides(layout, case, out, table), *more]))


def fork(size, work, *given):
    """Start all ranks of a piece of work; return whether all ended well."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
            os.environ.update({key: str(value) for key, value in told.items()})
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            work(*given)
            os._exit(0)
        children.append(child)
    return all([os.waitpid(child, 0)[1] == 0 for child in children])


def main(out, table):
    """Do all, and exit with the names of what did not end as it should."""
    wrong = [] if fork(1, work, PLAIN, out, table) else [PLAIN]
    wrong += [own for own, (size, _) in LAYOUTS.items() if not fork(size, work, own, out, table)]
    for case in INTERRUPTED:
        for name, well in ((f"whole-{case}", True), (f"killed-{case}", False)):
            wrong += [] if fork(2, interrupted, name, out, table) is well else [name]
        wrong += [] if fork(2, interrupted, f"resumed-{case}", out, table) else [case]
    sys.exit(f"failed: {wrong}" if wrong else 0)


if __name__ == "__main__":
    os.environ["DS_ACCELERATOR"] = "cpu"
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # a fork copies no page to count what it never frees
    main(*sys.argv[1:])
