"""Measure each rank's peak host memory while a model is loaded in parts (hardware=zero1_mp4).

    python benchmarks/divided_memory.py [--ranks 4] [--folder DIR]

Writes a synthetic T5 of T5-XXL's width with 2 + 2 layers (2.3 GB in bf16), unless DIR has one.
Then loads it with one process per rank. No rank may hold the whole model. The limit is 0.6 GB for
Python and its libraries plus the rank's own part.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ALLOWED = 0.6e9
RESULTS = Path(__file__).parent / "results" / "divided_memory.json"
SHAPE = ["backbone=t5_v1_1_xxl", "model.num_layers=2", "model.num_decoder_layers=2"]


def peak() -> int:
    """Return this process's peak memory in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def rank(folder: str, ranks: int) -> None:
    """Load this rank's part and print the memory it took."""
    import torch

    from ptrun.backbone.pretrained import PretrainedBackbone
    from ptrun.hardware.ranks import joined

    world = joined(ranks, "cpu")
    backbone = PretrainedBackbone(name="synthetic", path=folder)
    backbone.division = world.division("cpu")
    import deepspeed.module_inject.auto_tp  # noqa: F401
    import transformers.models.t5.modeling_t5  # noqa: F401

    before = peak()
    backbone.load(torch.bfloat16)
    part = sum(p.numel() * p.element_size() for p in backbone.model.parameters())
    found = {"rank": world.rank, "libraries": before, "part": part, "peak": peak()}
    print(json.dumps({**found, "parameters": backbone.size()}))


def main() -> None:
    """Write the model, load it in parts and save the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary, "model")
        if not folder.exists():
            line = ["-m", "ptrun", "pretrain", "--random", *SHAPE, f"out={folder}"]
            subprocess.run([sys.executable, *line], check=True)
        rows = load(folder, given.ranks)
    whole = 2 * rows[0]["parameters"]
    for row in rows:
        row["within"] = row["peak"] <= ALLOWED + row["part"]
        print(json.dumps(row))
    RESULTS.write_text(json.dumps({"whole_bytes": whole, "ranks": rows}, indent=1) + "\n")


def load(folder: Path, ranks: int) -> list[dict]:
    """Return the figures that each rank printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for index in range(ranks):
        world = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": ranks, "MASTER_PORT": port}
        env = {**os.environ, **{k: str(v) for k, v in world.items()}, "MASTER_ADDR": "127.0.0.1"}
        line = [sys.executable, __file__, "rank", str(folder), str(ranks)]
        processes.append(subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True))
    printed = [process.communicate()[0] for process in processes]
    return [json.loads(text.splitlines()[-1]) for text in printed]


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], int(sys.argv[3]))
    else:
        main()
