"""Seconds to tokenize AG News test and SQuAD contexts, the first and the second time.

    python benchmarks/tokenizing.py --data DIR --tokenizer FOLDER

FOLDER is a model folder. SQuAD is read as pairs of question and context cut at 384 tokens; windows
come with the read-out of questions. Written to results/tokenizing.json.
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
from ptrun.task.classification import Classification
from ptrun.token_cache import encoded

RESULT = Path(__file__).parent / "results" / "tokenizing.json"


def tasks(data: Path) -> dict:
    """Return AG News, and SQuAD as pairs with a dummy label."""
    ag_news = build(compose_run(["task=ag_news"]).config["task"], str(data), None)
    splits = {"train": "validation", "dev": None, "test": "validation"}
    squad = build(compose_run(["task=squad"]).config["task"], str(data), None)
    pairs = Classification(
        str(data),
        name="squad_pairs",
        version=1,
        source={"folder": "squad"},
        splits=splits,
        fields=["question", "context"],
        label="title",
        labels={title: title for title in titles(squad, data)},
        max_tokens=384,
    )
    return {"ag_news": ag_news, "squad": pairs}


def titles(squad: object, data: Path) -> list[str]:
    """Return the titles of SQuAD's validation rows."""
    rows = squad._source.rows("validation")
    return sorted({row.text("title") for row in rows})


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", required=True)
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, task in tasks(given.data).items():
            backbone = PretrainedBackbone(name="x", path=given.tokenizer)
            method, examples = PTuningV2(backbone, task, length=1), task.load("test")
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
