"""A small finished run that the tests of the API share."""

import json
from itertools import islice

import pytest

import ptrun
from ptrun.pocket.tasks import rows

SIZES = {"train": 24, "validation": 8, "test": 12}
SMALL = {"train": {"max_steps": 2, "batch_size": 4}, "hardware": "cpu"}
PRECISE = "hardware.precision=fp32"


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Return values that runs share: rows of two pocket tasks, and a folder of runs."""
    root = tmp_path_factory.mktemp("api")
    for task in ("pocket_sentiment", "pocket_choice"):
        (root / task).mkdir()
        for split, count in SIZES.items():
            lines = [json.dumps(row) + "\n" for row in islice(rows(task, split), count)]
            (root / task / f"{split}.jsonl").write_text("".join(lines))
    return {**SMALL, "data_dir": str(root), "outputs": str(root / "outputs")}


@pytest.fixture(scope="session")
def own(place):
    return ptrun.run(PRECISE, method="ptuning_v2", task="pocket_sentiment", seed=1, **place)
