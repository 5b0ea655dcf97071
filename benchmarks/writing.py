"""Compare the writing of texts with stock PEFT: one prompt, and eight prompts at once.

    make weights && python benchmarks/writing.py [--weights weights/smollm2_135m]

Both write 16 tokens greedily with prefixes of 20, in fp32, in one process; pairs alternate. Eight
prompts are one batch here; PEFT switches adapters, one call for each. Texts are equal. Writes
results/writing.md.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from running import HERE, RESULTS

from ptrun.backbone.base import BackboneInput
from ptrun.backbone.generation import Decoding, generate
from ptrun.backbone.joining import join
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.readout.base import Features, TokenRow, collate
from ptrun.readout.writing import WritingReading
from ptrun.task.generation import Generation

NEW, PROMPTS, LENGTH, PAIRS = 16, 8, 20, 9


def task() -> Generation:
    """Return a task; its rows are not read."""
    splits = {"train": "train", "dev": "validation", "test": "test"}
    common: dict[str, Any] = {"source": {"pocket": "pocket_writing"}, "splits": splits}
    return Generation(
        None, name="pocket_writing", version=1, fields=["facts"], target="sentences", **common
    )


def methods(backbone: PretrainedBackbone) -> list[PTuningV2]:
    """Return methods with random prefixes."""
    made = []
    for seed in range(PROMPTS):
        torch.manual_seed(seed)
        own = PTuningV2(backbone, task(), WritingReading(max_new_tokens=NEW), length=LENGTH)
        with torch.no_grad():
            for tensor in own.learned().values():
                tensor.add_(torch.randn_like(tensor) * 0.3)
        own.placed()
        made.append(own.eval())
    return made


def stock(backbone: PretrainedBackbone, own: list[PTuningV2]) -> Any:
    """Return stock PEFT's model with the same prefixes, an adapter for each."""
    from peft import PeftModelForCausalLM, PrefixTuningConfig
    from transformers import AutoModelForCausalLM

    shape = backbone.shape
    base = AutoModelForCausalLM.from_pretrained(backbone.folder, dtype=torch.float32)
    options = {
        "task_type": "CAUSAL_LM", "num_virtual_tokens": LENGTH,
        "token_dim": shape.heads * shape.head_size, "num_attention_heads": shape.heads,
        "num_layers": shape.layers,
    }  # fmt: skip
    model: Any = None
    for index, method in enumerate(own):
        config = PrefixTuningConfig(**options)
        name = f"a{index}"
        if model is None:
            model = PeftModelForCausalLM(base, config, adapter_name=name)
        else:
            model.add_adapter(name, config)
        table = method.exported()["prompt.prefix"].flatten(1)
        model.prompt_encoder[name].embedding.weight.data.copy_(table)
    return model.eval()


def main() -> None:
    """Time both, and write the page."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--weights", type=Path, default=HERE.parent / "weights" / "smollm2_135m")
    folder = made.parse_args().weights
    backbone = PretrainedBackbone(name="smollm2_135m", path=str(folder), dtype="fp32")
    backbone.load()
    own = methods(backbone)
    tokenizer = backbone.tokenizer()
    text = "Tell me about the sea in winter, and about the people who live by it."
    ids = tokenizer(text).input_ids
    row = [Features("a", [TokenRow(ids, reads=[len(ids) - 1])], [])]
    inputs = [method.inputs(collate(row, None, torch.device("cpu"))) for method in own]
    model, decoding = stock(backbone, own), Decoding(max_new_tokens=NEW)

    def ours(given: BackboneInput) -> list[list[int]]:
        return generate(backbone, given, decoding)

    def theirs(name: str) -> list[int]:
        model.set_adapter(name)
        given = torch.tensor([ids])
        written = model.generate(
            input_ids=given, attention_mask=torch.ones_like(given), max_new_tokens=NEW,
            do_sample=False, eos_token_id=None, pad_token_id=0,
        )[0].tolist()  # fmt: skip
        return written[len(ids) :] if written[: len(ids)] == ids else written

    with torch.no_grad():
        joined = join(inputs).given
        both = ours(joined), [theirs(f"a{i}") for i in range(PROMPTS)]
        equal = sum(a == b for a, b in zip(*both, strict=True))
        one = ratios(lambda: ours(inputs[0]), lambda: theirs("a0"))
        eight = ratios(lambda: ours(joined), lambda: [theirs(f"a{i}") for i in range(PROMPTS)])
    lines = [
        "# Writing texts, against stock PEFT", "",
        f"SmolLM2-135M, prefixes of {LENGTH}, {NEW} tokens, fp32, {torch.get_num_threads()} "
        f"threads; seconds of PEFT / seconds of ptrun, median of {PAIRS} pairs.", "",
        "| prompts | ratio | least, most |", "|---|---|---|",
        f"| one | {median(one):.2f} | {min(one):.2f}, {max(one):.2f} |",
        f"| {PROMPTS}, one batch against switching | {median(eight):.2f} | {min(eight):.2f}, "
        f"{max(eight):.2f} |", "", f"{equal} of {PROMPTS} texts are equal.",
    ]  # fmt: skip
    print("\n".join(lines))
    (RESULTS / "writing.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def ratios(ours: Callable[[], object], theirs: Callable[[], object]) -> list[float]:
    """Return the seconds of `theirs` over those of `ours`, pair by pair."""
    return [seconds(theirs) / seconds(ours) for _ in range(PAIRS)]


def seconds(work: Callable[[], object]) -> float:
    """Return how long work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
