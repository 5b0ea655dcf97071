"""What runs left in their folders, read and compared."""

import json

from safetensors.torch import load_file


def rows(folder, event="step"):
    """Return the rows of an event in the journal of a run that may still write it."""
    lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    return [row for row in map(json.loads, lines) if row["event"] == event]


def assert_same(first, second, files=("prompt.safetensors",)):
    """Compare the steps and the tensors of two runs to the bit."""
    assert rows(first) == rows(second)
    for name in files:
        ours, theirs = (load_file(folder / name) for folder in (first, second))
        assert ours.keys() == theirs.keys() and all(ours[key].equal(theirs[key]) for key in ours)
