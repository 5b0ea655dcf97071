"""Measure the seconds to tokenize AG News test and SQuAD validation, first and cached.

    python benchmarks/tokenizing.py --data DIR --tokenizer FOLDER

FOLDER is a model folder with 512 positions or more, for windows of 384 tokens. Writes
results/tokenizing.json.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.runs.token_cache import encoded
from ptrun.task.base import Task

RESULT = Path(__file__).parent / "results" / "tokenizing.json"


def task_of(name: str, data: Path) -> Task:
    """Return a task over the local data."""
    return build("task", compose_run([f"task={name}"]).config["task"], str(data), None)


def main() -> None:
    """Measure, save and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, part in (("ag_news", "test"), ("squad", "dev")):
            task = task_of(name, given.data)
            backbone = PretrainedBackbone(name="x", path=given.tokenizer)
            method, examples = PTuningV2(backbone, task, length=1), task.load(part)
            seconds = []
            for _ in range(2):
                began = time.perf_counter()
                rows = encoded(method, examples, Path(folder))
                seconds.append(round(time.perf_counter() - began, 2))
            found[name] = {"rows": len(rows), "first": seconds[0], "second": seconds[1]}
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()
