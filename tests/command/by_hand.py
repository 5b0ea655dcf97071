"""Run folders without a run."""

import json

import torch

from ptrun.folder import tensors

ROWS = [
    {"event": "step", "step": 1, "loss": 1.0, "seconds": 3},
    {"event": "step", "step": 2, "loss": 0.5},
    {"event": "dev", "step": 2, "f1": 50.0},
    {"event": "test", "f1": 60.0},
]
DATA = {"digest": "aa", "train": {"count": 2, "ids_hash": "ee", "ids": ["1", "2"]}}


def write_prompt(folder, value, dtype=torch.float32):
    file = folder / "prompt.safetensors"
    tensors.draft(file, {"prompt.rows": torch.full((2, 3), value, dtype=dtype)}, {})()


def written(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def made(folder, *, config=None, manifest=None, versions=None, f1=60.0, **changed):
    folder.mkdir(parents=True)
    result = {
        **{"run_id": "run", "group": "group", "status": "finished", "seed": 1, "metric": "f1"},
        "names": {"method": "pt", "task": "t"},
        "metrics": {"dev": {"f1": 50.0}, "test": {"f1": f1}},
        "learned_parameters": {"total": 6},
        "manifest": {"data": DATA, "versions": versions or {"torch": "2.8"}, **(manifest or {})},
        "config": {"seed": 1, "data": "aa", "train": {"lr": 0.1}, **(config or {})},
        **changed,
    }
    (folder / "result.json").write_text(json.dumps(result))
    written(folder / "metrics.jsonl", ROWS)
    written(folder / "predictions.jsonl", [{"id": "1", "prediction": "a", "target": "a"}])
    write_prompt(folder, 1.0)
    return folder
