"""What a written token costs on the disguised device, as JSON: launches and waits of the host.

python -m tests.cuda tests.cuda.writing
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from ptrun.backbone.base import Update, Updates
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.backbone.pretrained import sizes
from ptrun.method.lora import updated
from tests.backbone.test_generation import asked
from tests.conftest import write_tiny
from tests.cuda.events import EVENTS, WAIT
from tests.cuda.launches import launches
from tests.families import PaperBackbone

_TEXTS = 8, 16  # the tokens of two texts; their difference has no prompt in it
_DECODINGS = {"greedy": Decoding(ends=(1,)), "draws": Decoding(temperature=1.0)}


def per_token(write: Callable[[int], Any]) -> list[float]:
    """Return launches and waits per token."""
    counts = []
    for tokens in _TEXTS:
        EVENTS.clear()
        with launches() as started:
            write(tokens)
        counts.append((len(started), EVENTS.count(WAIT)))
    short, long = counts
    return [(b - a) / (_TEXTS[1] - _TEXTS[0]) for a, b in zip(short, long, strict=True)]


def updates(backbone: Any, rows: int) -> Updates:
    """Return low-rank updates of a backbone's attention, which its maps now add."""
    maps = {}
    for path, module in backbone.linear_maps().items():
        if path.rpartition(".")[2] in backbone.architecture.attention_maps:
            module.register_forward_hook(partial(updated, backbone.injection, path))
            width, out = sizes(module)
            maps[path] = Update(torch.ones(2, width), torch.ones(out, 2), 2.0, 0.0, 1)
    return Updates(rows, maps)


def counts(folder: Path, kind: str) -> dict[str, list[float]]:
    """Return what a token costs, by what writes it."""
    backbone = PaperBackbone(name=kind, path=str(folder), dtype="fp32")
    backbone.read_weights(device="cuda")
    with torch.device("cuda"):
        bare, prefixed = (asked(backbone, prefix=prefix) for prefix in (False, True))
        lora = replace(bare, updates=[updates(backbone, len(bare.mask))])
    inputs = {"bare": bare, "prefix": prefixed, "lora": lora}
    inputs |= {name: prefixed for name in _DECODINGS}

    def write(name: str, tokens: int) -> Any:
        decoding = replace(_DECODINGS.get(name, Decoding()), max_new_tokens=tokens)
        return generate(backbone, inputs[name], decoding, seeds=range(len(bare.mask)))

    stock = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa")
    stock.to("cuda")
    options = {"cache_implementation": "static", "disable_compile": True, "do_sample": False}
    options |= {
        "eos_token_id": None,
        "pad_token_id": 0,
        "input_ids": bare.ids,
        "attention_mask": bare.mask.long(),
    }
    costs = {name: per_token(lambda tokens, name=name: write(name, tokens)) for name in inputs}
    static = per_token(lambda n: stock.generate(**options, max_new_tokens=n))
    return costs | {"static": static}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folders = {kind: write_tiny(Path(name) / kind, kind) for kind in ("gpt2", "llama")}
        print(json.dumps({kind: counts(folder, kind) for kind, folder in folders.items()}))
