"""Measure the peak memory of `ptrun import cpm2` on a synthetic checkpoint of four ranks.

    python benchmarks/import_memory.py [--gigabytes 1] [--ranks 4]

The checkpoint has random fp16 weights in CPM-2's layout. A temporary folder holds it and the
converted model. The import runs in its own process. Its peak is the kernel's ru_maxrss, which
counts mapped pages of the checkpoint, the interpreter and torch. ru_maxrss starts at the size of
the parent process, so the parent does not import torch.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from ptrun.importing.cpm2_layout import targets
from ptrun.importing.cpm2_sizes import ALIASES, EMBEDDINGS, Sizes

_IMPORT = """
import json, resource, sys
from ptrun.command.import_ import main
main(["cpm2", sys.argv[1], "--out", sys.argv[2], *sys.argv[3:]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""
_BASELINE = """
import resource, ptrun.importing.cpm2
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def sizes_of(gigabytes: float) -> Sizes:
    """Return CPM-2's shape with width 1024 and as many layers as the size needs."""
    width, d_ff, vocab = 1024, 2560, 26_240
    layer = 2 * (12 * width * width + 6 * d_ff * width)  # fp16 bytes: encoder, decoder
    layers = max(1, round((gigabytes * 1e9 - 4 * vocab * width) / layer))
    return Sizes(vocab, width, width, d_ff, 16, 32, layers, layers)


def write_rank(folder: Path, sizes: Sizes, rank: int, ranks: int) -> None:
    """Write one rank's random tensors."""
    import torch

    state = {}
    for target in targets(sizes):
        shape = list(target.saved_shape)
        if target.axis is not None:
            shape[target.axis] //= ranks
        if target.source not in state:
            flat = target.axis is None
            state[target.source] = (
                torch.ones(shape) if flat else torch.empty(shape).normal_()
            ).half()
    state |= dict.fromkeys(ALIASES, state[EMBEDDINGS])
    torch.save(
        {"module": state, "iteration": 1, "mp_world_size": ranks},
        folder / f"mp_rank_{rank:02d}_model_states.pt",
    )


def in_a_process(code: str, *arguments: str) -> int:
    """Run code and return the last number it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
    )
    return int(done.stdout.split()[-1])


def measure(gigabytes: float, ranks: int, options: list[str]) -> dict[str, object]:
    """Return sizes, seconds and peak of one import."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "shards"
        folder.mkdir()
        make = [sys.executable, __file__, "--ranks", str(ranks), "--make", str(folder)]
        subprocess.run([*make, "--gigabytes", str(gigabytes)], check=True)
        checkpoint = sum(file.stat().st_size for file in folder.iterdir())
        started = time.perf_counter()
        peak = in_a_process(_IMPORT, str(folder), str(Path(temporary) / "out"), *options)
        seconds = time.perf_counter() - started
        written = sum(file.stat().st_size for file in (Path(temporary) / "out").iterdir())
    return {
        "options": options,
        "checkpoint_bytes": checkpoint,
        "written_bytes": written,
        "seconds": round(seconds, 1),
        "peak_bytes": peak,
        "peak_over_checkpoint": round(peak / checkpoint, 3),
    }


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--make", type=Path, help="only write a checkpoint to this folder")
    given = parser.parse_args()
    if given.make:
        for rank in range(given.ranks):
            write_rank(given.make, sizes_of(given.gigabytes), rank, given.ranks)
        return
    runs = [measure(given.gigabytes, given.ranks, options) for options in ([], ["--dtype", "fp32"])]
    report = {"ranks": given.ranks, "torch": version("torch")}
    report["peak_bytes_of_imports_alone"] = in_a_process(_BASELINE)
    print(json.dumps(report | {"runs": runs}, indent=1))


if __name__ == "__main__":
    main()
