"""Measure peak memory while a backbone's weights load: `python benchmarks/load_memory.py`.

A new process loads a synthetic T5 of about 1 GB in bf16, in several files, as bf16 and as fp32.
The ratio is the peak above the bare process divided by the size of the loaded weights.
Writes results/load_memory.json.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "load_memory.json"
LOAD = """
import json, resource, sys, time, torch, transformers
from ptrun.backbone.pretrained import PretrainedBackbone
from transformers import T5ForConditionalGeneration
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
backbone = PretrainedBackbone(name="x", path=sys.argv[1])
backbone.size()
bare, began = peak(), time.perf_counter()
backbone.load(getattr(torch, sys.argv[2]))
held = sum(p.numel() * p.element_size() for p in backbone.model.parameters())
seconds = time.perf_counter() - began
print(json.dumps({"bare": bare, "peak": peak(), "weights": held, "seconds": round(seconds, 2)}))
"""
WRITE = """
import sys, torch, transformers
config = transformers.T5Config(vocab_size=32128, d_model=1024, d_kv=64, d_ff=2816, num_layers=13,
    num_heads=16, feed_forward_proj="gated-gelu")
torch.set_default_dtype(torch.bfloat16)
model = transformers.T5ForConditionalGeneration(config)
model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
config.scale_decoder_outputs = False
model.save_pretrained(sys.argv[1], max_shard_size="200MB")
"""


def python(code: str, *arguments: str) -> str:
    """Return the output of a new process."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> None:
    """Measure, save and print."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        python(WRITE, folder)
        for dtype in ("bfloat16", "float32"):
            one = json.loads(python(LOAD, folder, dtype).splitlines()[-1])
            one["ratio"] = round((one["peak"] - one["bare"]) / one["weights"], 3)
            found[dtype] = one
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()
