"""Measure the steady state of training on one GPU: ptrun beside HF Trainer + PEFT, in turns.

    python benchmarks/speed.py                 a CUDA device, 150 s for both products
    python benchmarks/speed.py --more          Llama-3.2-1B's and T5-XXL's shapes instead
    python benchmarks/speed.py --small         a miniature, on a CPU; --device cuda: elsewhere

Shapes have random weights, drawn on the device. Both products train the same rows of L/2 to L
tokens, and 20 vectors or LoRA of rank 8. A decoder learns the last 200 tokens of a row, an
encoder-decoder two. Of 220 steps the first 20 are left out; a window ends after 4 s if they take
longer. The host waits for the device at both ends of the window, not within.

The peer has its best flags: weights in bf16, bf16 autocast, SDPA, fused AdamW, rows grouped by
length, no check of losses; compiled once, rows are padded to L. Sixteen of its runs follow one
another, so their rate is that of one. After the window two steps are counted: launches of kernels
and of CUDA graphs, copies, waits, and the time of the host without waits (with the profiler's own
cost). Without a GPU the dispatched operations that are no views are counted.

Prints a JSON object after each cell. A share is FLOPs / s over the bf16 products measured here:
for each real token 4 a weight of the linear maps (forward, and backward to inputs), 12 L t w for
attention of width w in L layers over rows of t tokens (half if causal), and 4 V h for each learned
token of a vocabulary V. Vectors, padding and LoRA do not count.
"""

import argparse
import gc
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

VECTORS = 20
ANSWER, DECODED = 200, 2  # learned tokens of a row, of a decoder and of an encoder-decoder
BUDGET, START, SECONDS = 150, 60, 4.0  # of all cells, of a process' start, of a window
FULL, SMALL = (20, 200, 2), (3, 5, 1)  # steps that are left out, timed, counted
BATCHES = 50  # of different rows: what the peer sorts at a time
RATE = 1e-3  # small: random weights in bf16 stay finite
NOT_BEGUN = "not begun"
METHODS = {"prefix": "ptuning_v2", "prompt": "prompt_tuning", "lora": "lora"}
SIZES = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "vocab_size": 500}
SIZES |= {"intermediate_size": 128, "num_key_value_heads": 1, "num_layers": 2}
SIZES |= {"num_decoder_layers": 2, "d_model": 64, "d_kv": 16, "num_heads": 2, "d_ff": 128}


@dataclass(frozen=True)
class Cell:
    """One measurement: a backbone of conf/backbone, a batch, a method.

    `limit` is in seconds, for each product. `products` are measured in this order.
    """

    shape: str
    batch: int
    length: int
    method: str
    runs: int = 1
    products: tuple[str, ...] = ("ptrun", "peer")
    limit: int = 30

    @property
    def name(self) -> str:
        """The cell's name in the results."""
        runs = f", {self.runs} runs" if self.runs > 1 else ""
        return f"{self.shape} {self.batch} x {self.length} {self.method}{runs}"


CELLS = (
    Cell("bert_base_uncased", 32, 128, "prefix", limit=60),  # kernels are compiled
    Cell("bert_base_uncased", 32, 128, "prompt"),
    Cell("roberta_large", 32, 128, "prefix"),
    Cell("roberta_large", 32, 128, "prompt"),
    Cell("bert_base_uncased", 8, 25, "prompt"),
    Cell("smollm2_135m", 8, 512, "lora"),
    Cell("smollm2_135m", 8, 512, "prefix"),
    Cell("bert_base_uncased", 8, 25, "prompt", runs=16),
    Cell("roberta_large", 128, 128, "prefix"),
    Cell("bert_base_uncased", 32, 128, "prompt", products=("compiled",), limit=75),
)
MORE = (
    Cell("llama3_2_1b", 4, 768, "lora", limit=60),
    Cell("t5_v1_1_xxl", 16, 256, "prompt", limit=90),
)


def sizes(cell: Cell, small: bool) -> dict[str, Any]:
    """Return the configuration of a cell's backbone; a miniature keeps the names of its sizes."""
    from ptrun.config.compose import compose_run

    config = compose_run([f"backbone={cell.shape}"]).config["backbone"]["config"]
    return {**config, **({k: n for k, n in SIZES.items() if k in config} if small else {})}


def rows(cell: Cell, vocabulary: int) -> list[list[int]]:
    """Return the token ids of the rows, L/2 to L tokens each."""
    import torch

    draw, count = torch.Generator().manual_seed(0), cell.batch * BATCHES
    lengths = torch.randint(cell.length // 2, cell.length + 1, (count,), generator=draw).tolist()
    return [torch.randint(5, vocabulary, (n,), generator=draw).tolist() for n in lengths]


def learned(config: dict[str, Any], length: int) -> int:
    """Return how many tokens of a row are learned: 0 is a label."""
    answers = {"llama": min(ANSWER, length // 4), "t5": DECODED}
    return answers.get(config["model_type"], 0)


def flops(config: dict[str, Any], texts: list[list[int]], answer: int) -> float:
    """Return the FLOPs of a real token, on average over rows; see above."""
    total = sum(map(len, texts))
    mean, share = sum(len(ids) ** 2 for ids in texts) / total, len(texts) * answer / total
    if config["model_type"] == "t5":  # the decoder's few tokens pass its layers uncounted
        layers, hidden, wide = config["num_layers"], config["d_model"], config["d_ff"]
        width, causal = config["num_heads"] * config["d_kv"], 1
        weights = layers * (4 * hidden * width + 3 * hidden * wide)
        weights += config["num_decoder_layers"] * 2 * hidden * width
    else:
        layers, hidden = config["num_hidden_layers"], config["hidden_size"]
        width, wide = hidden, config["intermediate_size"]
        heads = config["num_attention_heads"]
        keys, causal = config.get("num_key_value_heads", heads), 1 + (answer > 0)
        maps = 3 if answer else 2  # a gate
        weights = layers * (2 * hidden * width * (1 + keys / heads) + maps * hidden * wide)
    attention = 12 * layers * width * mean / causal
    return float(4 * weights + attention + 4 * config["vocab_size"] * hidden * share)


class Window:
    """Times steps and then counts a few; `step` is called after each.

    Args:
        device: where the steps are taken.
        plan: the numbers of steps that are left out, timed, counted.
        tokens: returns the real tokens so far.
    """

    def __init__(self, device: str, plan: tuple[int, int, int], tokens: Callable[[int], int]):
        self.device, (self.warm, self.timed, self.counted), self.tokens = device, plan, tokens
        self.steps, self.end, self.figures = 0, 0, {}
        self._before, self._counter = (0.0, 0), Counting(device)

    def step(self) -> bool:
        """Note the end of a step; return whether all was measured."""
        self.steps += 1
        if self.steps == self.warm:
            self._before = self._now()
        elif self.steps > self.warm and not self.end:
            spent = time.perf_counter() - self._before[0]
            if self.steps == self.warm + self.timed or spent > SECONDS:
                self._close()
        elif self.end == self.steps:
            self.figures |= self._counter.stop(self.counted)
            return True
        return False

    def _now(self) -> tuple[float, int]:
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter(), self.tokens(self.steps)

    def _close(self) -> None:
        import torch

        (began, before), (ended, tokens) = self._before, self._now()
        steps = self.steps - self.warm
        self.figures = {
            "tokens_per_second": round((tokens - before) / (ended - began), 1),
            "ms": round(1000 * (ended - began) / steps, 3),
            "steps": steps,
            "tokens_per_step": round((tokens - before) / steps, 1),
        }
        if self.device == "cuda":
            for name, peak in (
                ("peak_mib", torch.cuda.max_memory_allocated()),
                ("reserved_mib", torch.cuda.max_memory_reserved()),
            ):
                self.figures[name] = round(peak / 2**20, 1)
        self.end = self.steps + self.counted
        self._counter.start()


class Counting:
    """Counts what the host does in some steps: by the profiler, or without a GPU by dispatch."""

    def __init__(self, device: str):
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        class Operations(TorchDispatchMode):
            count = 0

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                aliases = [result.alias_info for result in func._schema.returns]
                self.count += not any(alias and not alias.is_write for alias in aliases)
                return func(*args, **(kwargs or {}))

        kinds = torch.profiler.ProfilerActivity
        self.profiles = device == "cuda" and torch.version.cuda is not None
        profiler = torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA])
        self.counter: Any = profiler if self.profiles else Operations()
        self.began = 0.0

    def start(self) -> None:
        """Start to count."""
        self.counter.__enter__()
        self.began = time.perf_counter()

    def stop(self, steps: int) -> dict[str, float]:
        """Return the counts of a step."""
        spent = time.perf_counter() - self.began
        self.counter.__exit__(None, None, None)
        if not self.profiles:
            return {"operations": round(self.counter.count / steps, 1)}
        counts: Counter[str] = Counter()
        waited = 0.0
        for event in self.counter.key_averages():
            for kind, names in CALLS.items():
                if event.key.startswith(names):
                    counts[kind] += event.count
                    # the profiler's own cudaDeviceSynchronize comes after the steps
                    waited += event.self_cpu_time_total / 1e6 if kind == "waits" else 0.0
        shares = {kind: round(counts[kind] / steps, 1) for kind in CALLS}
        return {**shares, "host_ms": round(1000 * (spent - waited) / steps, 3)}


CALLS: dict[str, tuple[str, ...]] = {
    "launches": ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchCooperativeKernel"),
    "graphs": ("cudaGraphLaunch",),
    "copies": ("cudaMemcpyAsync", "cudaMemsetAsync"),
    "waits": ("cudaStreamSynchronize", "cudaEventSynchronize"),
}


@contextmanager
def drawing(dtype: Any, device: str) -> Iterator[None]:
    """Let new tensors be made on a device, in a precision."""
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(usual)


def ptrun(cell: Cell, config: dict[str, Any], device: str, plan: tuple[int, int, int]) -> dict:
    """Measure ptrun: `runs` members over one backbone."""
    import torch

    from ptrun.backbone.pretrained import PretrainedBackbone
    from ptrun.config.compose import compose_run
    from ptrun.method.base import built
    from ptrun.training.member import Member

    texts, answer = rows(cell, config["vocab_size"]), learned(config, cell.length)
    asked = ["task=pocket_writing", "readout=writing"] if answer else ["task=pocket_sentiment"]
    asked += [f"method.length={VECTORS}"] if cell.method != "lora" else []
    composed = compose_run(
        [
            *(f"backbone={cell.shape}", f"method={METHODS[cell.method]}", *asked),
            *([] if answer else ["readout=head"]),
            *(f"hardware={'gpu' if device == 'cuda' else 'cpu'}", "train.schedule=constant"),
            f"hardware.precision={'bf16' if device == 'cuda' else 'fp32'}",
            *(f"train.batch_size={cell.batch}", f"train.max_steps={2 * sum(plan)}"),
            *(f"train.lr={RATE}", "train.eval_every=1000000"),
        ]
    )
    parts = composed.components()
    backbone = PretrainedBackbone(name=cell.shape, config=config)

    def read_weights(dtype: Any, device: str) -> None:
        architecture = backbone.architecture
        with drawing(dtype, device):
            model = architecture.model_class(backbone._library_config(config))
            if architecture.pooler:
                model.pooler = torch.nn.Linear(config["hidden_size"], config["hidden_size"])
        backbone.__dict__["model"] = backbone._prepare(model)

    backbone.read_weights = read_weights  # type: ignore[method-assign]
    torch.manual_seed(0)
    task, engine = parts["task"].build(None, None), parts["hardware"].build(backbone)
    engine.load(tuned=False)
    methods = [built(parts["method"], composed.readout, backbone, task) for _ in range(cell.runs)]
    engine.place(methods)
    features = [_features(i, ids, answer, config) for i, ids in enumerate(texts)]
    members: list[Member] = []
    window = Window(device, plan, lambda _: sum(member.tokens for member in members))
    for seed, method in enumerate(methods):
        journal = Journal(window if seed == 0 else None, members)
        score = lambda _: {"a": 0.0}  # noqa: E731
        data = (features, features[:1], score, "a")
        members.append(Member(method, *data, composed.train, seed, journal))
    engine.fit(members)
    if "tokens_per_second" not in window.figures:
        raise RuntimeError(f"training ended after {window.steps} steps: {members[0].failed}")
    return window.figures


def _features(index: int, ids: list[int], answer: int, config: dict[str, Any]) -> Any:
    from ptrun.readout.base import Features, TokenRow

    if config["model_type"] == "t5":
        row = TokenRow(ids, decoder=[0, *ids[: answer - 1]], reads=list(range(answer)))
        return Features(str(index), [row], ids[:answer])
    if not answer:
        return Features(str(index), [TokenRow(ids, reads=[0])], [index % 2])
    row = TokenRow(ids, reads=list(range(len(ids) - answer - 1, len(ids) - 1)))
    return Features(str(index), [row], ids[-answer:], {"prompt": len(ids) - answer})


class Journal:
    """A journal that saves nothing, and ends training after the window."""

    def __init__(self, window: Window | None, members: list[Any]):
        self.window, self.members = window, members

    def log(self, row: Any) -> None:
        """Note the end of a step."""
        if self.window and row["event"] == "step" and self.window.step():
            for member in self.members:
                member.failed = "measured"

    def draft(self, tensors: Any, meta: Any) -> Callable[[], None]:
        """Save nothing."""
        return lambda: None

    def restore(self) -> None:
        """Restore nothing."""


def peer(
    cell: Cell,
    config: dict[str, Any],
    device: str,
    plan: tuple[int, int, int],
    compiled: bool = False,
) -> dict:
    """Measure HF Trainer + PEFT with its best flags: one run."""
    import tempfile

    import peft
    import torch
    import transformers
    from peer_trainer import CONFIGS
    from torch.nn import functional
    from torch.nn.utils.rnn import pad_sequence

    os.environ.pop("ACCELERATE_DYNAMO_BACKEND", None)  # of an earlier cell
    texts, answer = rows(cell, config["vocab_size"]), learned(config, cell.length)
    kinds = {"llama": ("CausalLM", "CAUSAL_LM"), "t5": ("Seq2SeqLM", "SEQ_2_SEQ_LM")}
    head, kind = kinds.get(config["model_type"], ("SequenceClassification", "SEQ_CLS"))
    half = torch.bfloat16 if device == "cuda" else torch.float32
    fill = {"num_labels": 2} if kind == "SEQ_CLS" else {}
    library = transformers.AutoConfig.for_model(**config, **fill, use_cache=False)
    torch.manual_seed(0)
    with torch.device(device):
        model = getattr(transformers, f"AutoModelFor{head}").from_config(
            library, dtype=half, attn_implementation="sdpa"
        )
    model = peft.get_peft_model(model, CONFIGS[cell.method](VECTORS, kind))
    labels = {
        "SEQ_CLS": lambda i, _: i % 2,
        "CAUSAL_LM": lambda _, ids: [-100] * (len(ids) - answer) + ids[-answer:],
        "SEQ_2_SEQ_LM": lambda _, ids: ids[:answer],
    }[kind]
    data = [
        {"input_ids": torch.tensor(ids), "labels": torch.tensor(labels(i, ids))}
        for i, ids in enumerate(texts)
    ]
    counts: list[int] = []

    def collate(part: list[dict]) -> dict:
        ids = [row["input_ids"] for row in part]
        counts.append(sum(map(len, ids)))
        rows = [row["labels"] for row in part]
        ones = [torch.ones_like(row) for row in ids]
        targets = torch.stack(rows) if kind != "CAUSAL_LM" else pad_sequence(rows, True, -100)
        padded = {"input_ids": pad_sequence(ids, True), "attention_mask": pad_sequence(ones, True)}
        if compiled:  # for one length: torch 2.13 cannot compile this model for all
            free = (0, cell.length - padded["input_ids"].shape[1])
            padded = {name: functional.pad(tensor, free) for name, tensor in padded.items()}
        return {**padded, "labels": targets}

    window = Window(device, plan, lambda steps: sum(counts[:steps]))

    class Steps(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = window.step()

    with tempfile.TemporaryDirectory() as out:
        options = transformers.TrainingArguments(
            out,
            per_device_train_batch_size=cell.batch,
            max_steps=2 * sum(plan),
            learning_rate=RATE,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            train_sampling_strategy="group_by_length",
            bf16=device == "cuda",
            use_cpu=device != "cuda",
            accelerator_config={"non_blocking": True},
            torch_compile=compiled,
            torch_compile_backend=None if device == "cuda" or not compiled else "aot_eager",
            logging_nan_inf_filter=False,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            label_names=["labels"],
        )
        trainer = transformers.Trainer(
            model, options, collate, train_dataset=data, callbacks=[Steps()]
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return window.figures


def peak(device: str, size: int = 8192) -> float:
    """Return the FLOP/s of a bf16 matrix product, the best of ten trials."""
    import torch

    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    best = 0.0
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(5):
            product = a @ b
        float(product[0, 0])  # waits for the device
        best = max(best, 5 * 2 * size**3 / (time.perf_counter() - began))
    return best


def serve(pipe: Any, product: str, device: str, small: bool) -> None:
    """Measure the cells that come through a pipe, in one process with little left in memory."""
    from importlib import import_module

    import torch

    os.dup2(2, 1)  # the parent alone prints figures
    import_module("ptrun.training.loop" if product == "ptrun" else "peer_trainer")
    on = {"torch": torch.__version__, "device": "cpu"}
    if device == "cuda":
        card = torch.cuda.get_device_properties(0)
        on |= {"device": card.name, "memory_gib": round(card.total_memory / 2**30, 1)}
    if product == "ptrun" and not small:
        on["peak_tflops"] = round(peak(device) / 1e12, 3)
    pipe.send(on)
    while True:
        cell, called = pipe.recv()
        if small:
            fewer = {"batch": min(cell.batch, 4), "runs": min(cell.runs, 2)}
            cell = replace(cell, length=min(cell.length, 24), **fewer)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            config, plan = sizes(cell, small), SMALL if small else FULL
            if called == "ptrun":
                figures = ptrun(cell, config, device, plan)
            else:
                figures = peer(cell, config, device, plan, compiled=called == "compiled")
            texts = rows(cell, config["vocab_size"])
            operations = flops(config, texts, learned(config, cell.length))
            pipe.send({**figures, "mflops_per_token": round(operations / 1e6, 3)})
        except Exception as error:
            pipe.send({"failed": f"{type(error).__name__}: {error}"[:500]})
            del error
        gc.collect()  # a model is part of a cycle
        if device == "cuda":
            torch.cuda.empty_cache()


class Worker:
    """A process for the cells of one product; one that takes too long is replaced."""

    def __init__(self, *arguments: Any):
        self.arguments, self.process, self.ready = arguments, None, {}

    def begin(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, *self.arguments))
        self.process.start()
        other.close()
        self.ready = {}

    def ask(self, cell: Cell, product: str, left: float) -> dict:
        """Return the figures of a cell, or why there are none; `left` is the time of all cells."""
        if left < 1:
            return {"failed": f"{NOT_BEGUN}: the time of all cells was over"}
        if self.process is None:
            self.begin()
        if not self.ready:
            ready = self._received(min(START, left))
            if "failed" in ready:
                return ready
            self.ready = ready
        limit = cell.limit * (10 if self.arguments[-1] else 1)
        return self._received(min(limit, left), (cell, product))

    def _received(self, limit: float, *messages: Any) -> dict:
        """Send messages and return the answer; after a failure the process is another one."""
        try:
            for message in messages:
                self.pipe.send(message)
            failed = {"failed": f"no result in {limit:.0f} s"}
            answer = dict(self.pipe.recv()) if self.pipe.poll(limit) else failed
        except (EOFError, OSError):
            answer = {"failed": "its process ended"}
        if "failed" in answer:  # an error of CUDA would stay
            self.end()
        return answer

    def end(self) -> None:
        """Kill the process."""
        if self.process:
            self.process.kill()
            self.process.join()
        self.process = None


def measured(cells: tuple[Cell, ...], device: str, small: bool, seconds: float) -> Iterator[dict]:
    """Yield all that is measured so far, after each cell."""
    deadline = time.monotonic() + seconds
    workers = {name: Worker(name, device, small) for name in ("ptrun", "peer")}
    report: dict[str, Any] = {"seconds": seconds, "cells": []}
    try:
        for worker in workers.values():  # both import at once
            worker.begin()
        for cell in cells:
            row: dict[str, Any] = {"cell": cell.name}
            for product in cell.products:
                worker = workers["ptrun" if product == "ptrun" else "peer"]
                row[product] = figures = worker.ask(cell, product, deadline - time.monotonic())
                report = {**workers["ptrun"].ready, **report}
                if "tokens_per_second" in figures and (top := report.get("peak_tflops")):
                    rate = figures["tokens_per_second"] * figures["mflops_per_token"]
                    figures["share_of_peak"] = round(rate / 1e6 / top, 4)
            report["cells"].append(row)
            yield report
    finally:
        for worker in workers.values():
            worker.end()


def main() -> None:
    """Measure, and print the figures after each cell."""
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    parser.add_argument("--more", action="store_true", help="larger shapes")
    parser.add_argument("--small", action="store_true", help="a miniature")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="where a miniature runs")
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cells, from 0")
    parser.add_argument("--alone", action="store_true", help="without the peer")
    parser.add_argument("--seconds", type=float, default=BUDGET, help="of all cells")
    given = parser.parse_args()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ |= {"CUDA_VISIBLE_DEVICES": visible.split(",")[0], "HF_HUB_OFFLINE": "1"}
    # as torch does for its own graphs: a second profile of them can crash
    os.environ |= {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}
    device = given.device or ("cpu" if given.small else "cuda")
    cells = MORE if given.more else CELLS
    cells = tuple(cells[i] for i in given.only) if given.only else cells
    # the device that is not there refuses stock attention
    if given.alone or (given.small and device == "cuda"):
        cells = tuple(replace(c, products=("ptrun",)) for c in cells if "ptrun" in c.products)
    failed: list[str] = []
    for report in measured(cells, device, given.small, given.seconds):
        print(json.dumps(report), flush=True)
        figures = [row[name] for row in report["cells"] for name in row if name != "cell"]
        failed = [product["failed"] for product in figures if "failed" in product]
    raise SystemExit(any(given.small or not why.startswith(NOT_BEGUN) for why in failed))


if __name__ == "__main__":
    main()
