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
from functools import partial
from importlib import import_module
from pathlib import Path

PLAIN = "plain"
LAYOUTS = {"dp2": (2, 1), "tp2": (2, 2), "tp2_dp2": (4, 2), "tp4": (4, 4)}
"""Processes, and how many of them hold one model together."""

PROMPT, V2 = ["method=prompt_tuning", "method.length=5"], ["method=ptuning_v2", "method.length=5"]
GLM = ["backbone=pocket_glm", "backbone.path={out}/blocklm"]
MEGATRON = ["backbone=megatron_11b", "backbone.path={out}/megatron"]
ALL = "method=fine_tuning"
CASES = {
    "t5-prompt": ["backbone=pocket_t5", *PROMPT],
    "t5-all": ["backbone=pocket_t5", ALL],
    "bert-prompt": ["backbone=pocket_bert", *PROMPT],
    "bert-hidden": [*V2, "method.prefix_kind=hidden"],
    "bert-all": ["backbone=pocket_bert", ALL],
    "bert-bf16": ["backbone=pocket_bert", ALL, "hardware.precision=bf16"],
    "bert-int8": [*PROMPT, "hardware.quantization=int8"],
    "gpt2-all": ["backbone=pocket_gpt2", ALL],
    "bert-start": [*PROMPT, "start=pretrained:csv", "pretraining.recipe=prompt_tuning"],
    "qwen3-all": ["backbone.path={out}/qwen3", ALL],
    "glm-prompt": [*GLM, *V2],
    "glm-all": [*GLM, ALL],
    "megatron-prompt": [*MEGATRON, *V2],
    "megatron-all": [*MEGATRON, ALL],
}
CASES["bert-start"] += [
    "pretraining.task={{train:{table},text:text,label:label}}",
    "pretraining.train={{max_steps:2,lr:3e-4,eps:1e-5}}",
]
_FEW = {"t5-prompt", "t5-all", "bert-prompt", "bert-all"}
_TINY = {name for name in CASES if name.startswith(("glm", "megatron"))}  # of two heads
LEFT_OUT = {
    "dp2": {"bert-hidden", "qwen3-all", *_TINY},
    "tp2": {"bert-start", "bert-int8"},
    "tp2_dp2": CASES.keys() - _FEW,
    "tp4": _FEW - {"t5-all"} | {"bert-bf16", "bert-hidden", "bert-int8", "qwen3-all", *_TINY},
}
"""Four ranks on two cores are slow: there each model is tried, tuned or not."""

DIVIDED = ["qwen3", "gemma2", "gemma3_text", "granite", "smollm3", "starcoder2", "cohere"]
DIVIDED += ["gpt_neox", "llama", "pocket_bert", "pocket_gpt2", "pocket_t5"]
SOME_DIVIDED = ["qwen3", "starcoder2", "gpt_neox", "pocket_gpt2"]
"""Models of which one step is compared, on two ranks and on four."""
HEADS = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4}

INTERRUPTED = ("dp2-bert-all", "tp2-t5-prompt")
"""Layout and case of runs whose second rank is killed: a state in parts, and a whole one."""

# A key's bias moves no loss, so its gradient is rounding, which AdamW would make a whole step.
SHARED = ["hardware.precision=fp32", "train.max_steps=6", "train.batch_size=8", "train.lr=3e-4"]
SHARED += ["train.eval_every=6", "train.eps=1e-5"]
SHARED += ["task=csv", "task.text=text", "task.label=label"]
IMPORTED = ("ptrun.runs.recipe", "ptrun.hardware.deepspeed_engine", "deepspeed")
IMPORTED += ("ptrun.backbone.tensor_parallel",)
IMPORTED += ("transformers.models.bert.modeling_bert", "transformers.models.t5.modeling_t5")
IMPORTED += ("transformers.models.gpt2.modeling_gpt2", "transformers.models.qwen3.modeling_qwen3")


def overrides(layout, case, out, table):
    """Return what a run of one case in one layout is typed as."""
    hardware = ["hardware=cpu"]
    if layout != PLAIN:
        held = LAYOUTS[layout][1]
        hardware = ["hardware=zero1", "hardware.device=cpu", f"hardware.model_parallel={held}"]
        hardware += [f"hardware.token_budget={64 if layout == 'dp2' else 2048}"]
        hardware += [f"hardware.checkpointing={layout == 'tp4'}"]
    own = [f"outputs={out}", f"name={layout}-{case}", f"task.train={table}"]
    return [*hardware, *SHARED, *own, *(t.format(out=out, table=table) for t in CASES[case])]


def cases(layout):
    return [case for case in CASES if case not in LEFT_OUT.get(layout, ())]


def work(layout, out, table):
    """Do every case, in the process that this one is among."""
    from ptrun.config.compose import compose_run
    from ptrun.runs.launch import launch

    logging.getLogger("ptrun").setLevel(logging.ERROR)
    for case in cases(layout):
        launch(compose_run(overrides(layout, case, out, table)))
    if layout in (PLAIN, "tp2", "tp4"):
        gradients(layout, out)
    if layout == "tp2":
        file = Path(out, f"refused-{os.environ['RANK']}.json")
        file.write_text(json.dumps(refused(out, table)))
    if layout == "dp2":
        file = Path(out, f"idle-{os.environ['RANK']}.json")
        file.write_text(json.dumps([idle_heads(restarted=False), idle_heads(restarted=True)]))
        Path(out, f"half-{os.environ['RANK']}.json").write_text(json.dumps(half_step()))


def gradients(layout, out):
    """Write loss and gradients of one step for each model that is divided, by each method."""
    import torch

    from ptrun.backbone.pretrained import PretrainedBackbone
    from ptrun.hardware.deepspeed_engine import DeepSpeedEngine
    from ptrun.method.lora import LoRA
    from ptrun.method.prompt_tuning import PromptTuning
    from ptrun.method.ptuning_v2 import PTuningV2
    from tests.readings import reading, reads
    from tests.small_runs import member, sst2

    size = LAYOUTS.get(layout, (1, 1))[1]
    options = {"device": "cpu", "precision": "fp32", "token_budget": 1000, "checkpointing": False}
    task = sst2(Path(out, "data"), "{sentence} {mask}")
    tensors = {}
    for kind in DIVIDED if size < 4 else SOME_DIVIDED:
        source = {"shipped": kind} if kind.startswith("pocket") else {"path": f"{out}/{kind}"}
        backbone = PretrainedBackbone(name=kind, **source)
        engine = DeepSpeedEngine(backbone, model_parallel=size, ranks=None, **options)
        engine.connect()
        engine.load(tuned=False)
        maps = sorted({path.rpartition(".")[2] for path in backbone.linear_maps()})
        for make in (
            partial(PTuningV2, length=3, dropout=0.2),
            reads(PromptTuning, reading("verbalizer"), length=3),
            partial(LoRA, rank=2, dropout=0.2, targets=maps),
        ):
            run = member(make, backbone, task, batch_size=6)
            for parameter in run.learned.values():
                torch.nn.init.normal_(parameter, std=0.05)  # B of LoRA starts at zero
            engine.place([run.method])
            engine._prepare([run.method], [run.reads()], training=True)
            losses, _ = engine._accumulate([run])
            step = {"loss": losses[0], **{n: p.grad for n, p in run.learned.items()}}
            tensors[f"{kind} {type(run.method).__name__}"] = step
    if engine.world.main:
        torch.save(tensors, Path(out, f"gradients-{layout}.pt"))


def idle_heads(*, restarted):
    """Return how far heads that some batches leave are from where torch alone has them."""
    import torch

    from ptrun.config.schema import TrainConfig
    from ptrun.hardware.deepspeed_engine import ZeroStepper
    from ptrun.hardware.ranks import joined
    from ptrun.training.optim import TorchStepper, make_optimizer

    world, shapes = joined(1, "cpu"), {"prompt": (3, 2), "readout.a": (2, 3), "readout.b": (2,)}
    train = TrainConfig(weight_decay=0.1, clip=1.0)

    def steps(learned, make):
        stepper = make()
        for step, name in enumerate(("readout.a", "readout.b", "readout.a", "prompt")):
            if step == 3 and restarted and isinstance(stepper, ZeroStepper):
                kept, stepper = stepper.state(), make()
                stepper.resume(*kept)
            for own in {"prompt", name} if world.main or make is plain else ():
                torch.manual_seed(step)
                learned[own].grad = torch.randn(shapes[own])
                if make is not plain:  # the other rank has no rows
                    learned[own].grad *= stepper.scale
            stepper.clip(1.0)
            stepper.step(0.1)

    made = [{n: torch.nn.Parameter(torch.ones(s)) for n, s in shapes.items()} for _ in range(2)]

    def plain():
        return TorchStepper(make_optimizer(train, made[0]), made[0])

    def shared():
        whole = dict.fromkeys(shapes, True)
        optimizer = make_optimizer(train, made[1])
        return ZeroStepper(optimizer, made[1], whole, world, "cpu", divided=False)

    for learned, make in zip(made, (plain, shared), strict=True):
        steps(learned, make)
    return max(float((made[0][n] - made[1][n]).abs().max()) for n in shapes)


def half_step():
    """Return how far parameters move if memory runs out for the moments of the last of them."""
    from unittest.mock import patch

    import torch

    from ptrun.config.schema import TrainConfig
    from ptrun.hardware.deepspeed_engine import ZeroStepper
    from ptrun.hardware.ranks import joined
    from ptrun.training import optim
    from ptrun.training.optim import make_optimizer

    learned = {n: torch.nn.Parameter(torch.ones(2)) for n in ("prompt", "readout.a")}
    optimizer, world = make_optimizer(TrainConfig(), learned), joined(1, "cpu")
    own = ZeroStepper(optimizer, learned, dict.fromkeys(learned, True), world, "cpu", divided=False)
    moments = iter([optim._moments])  # once, then there is no memory

    def scarce(parameter):
        make = next(moments, None)
        if make is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return make(parameter)

    for parameter in learned.values():
        parameter.grad = torch.ones(2)
    own.clip(None)
    try:
        with patch.object(optim, "_moments", scarce):
            own.step(0.1)
    except torch.OutOfMemoryError:
        state, _ = own.state()
        masters = [values for name, values in state.items() if name.startswith("master.")]
        return max(float((values - 1).abs().max()) for values in masters)


def refused(out, table):
    """Return what two ranks that hold one model are told, by what they try."""
    from ptrun.config.compose import compose_run
    from ptrun.errors import RunFailed, UserError
    from ptrun.hardware.ranks import joined
    from ptrun.runs.launch import launch

    own = [f"outputs={out}", *SHARED, f"task.train={table}"]
    own += ["hardware=zero1", "hardware.device=cpu", "hardware.model_parallel=2"]
    tried = {
        "peft": ["method=peft", "method.config={peft_type: IA3}"],
        "fp16": ["hardware.precision=fp16"],
        "three": ["hardware.model_parallel=3"],
        "rows": [],
    }
    told = {}
    for name, typed in tried.items():
        try:
            if typed:
                launch(compose_run([*own, *typed]))
            joined(2, "cpu").check_same(int(os.environ["RANK"]), 5)
        except (UserError, RunFailed) as error:
            told[name] = str(error)
    return told


def interrupted(name, out, table):
    """Go through the tuned and the frozen run that are cut short; the second rank may be killed."""
    from ptrun.config.compose import compose_run
    from ptrun.runs.launch import launch
    from ptrun.runs.shared_store import SharedStore

    logging.getLogger("ptrun").setLevel(logging.ERROR)
    draft, saves = SharedStore.draft, []

    def fatal(*given):
        saves.append(given)
        if len(saves) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return draft(*given)

    if name.startswith("killed") and os.environ["RANK"] == "1":
        SharedStore.draft = fatal
    layout, case = name.split("-", 1)[1].split("-", 1)
    more = [f"name={name.replace('killed', 'resumed')}", "train.eval_every=2"]
    launch(compose_run([*overrides(layout, case, out, table), *more]))


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
    from tests.backbone import types
    from tests.conftest import write_data, write_tiny

    for kind in DIVIDED:
        if not kind.startswith("pocket"):
            types.make(kind, Path(out, kind), **HEADS)
    write_data(Path(out, "data"))
    for kind in ("blocklm", "megatron"):
        Path(out, kind).mkdir()
        write_tiny(Path(out, kind), kind)
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
