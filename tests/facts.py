"""Small pieces that tests of fact probing share: a task over rows, and batches of its patterns."""

import json

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.readout.base import Features, collate

ROWS = [
    ("P1", "Ann", "Oslo"),
    ("P1", "Bob", "Rome"),
    ("P1", "Ann Bob", "Oslo"),
    ("P2", "film", "good"),
    ("P2", "the plot", "dull"),
    ("P2", "a film of Rome", "bad"),
]


def facts(folder, *overrides, rows=ROWS):
    """Return `lama` over rows of (relation, subject, object), dev without the last."""
    (folder / "lama_trex").mkdir(parents=True, exist_ok=True)
    for split, own in (("train", rows), ("validation", rows[:-1]), ("test", rows)):
        told = [
            {"predicate_id": p, "sub_label": x, "obj_label": y, "template": "[X] was in [Y] ."}
            for p, x, y in own
        ]
        file = folder / "lama_trex" / f"{split}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in told))
    return task("lama", folder, *overrides)


def task(name, folder, *overrides):
    return build(
        "task", compose_run([f"task={name}", *overrides]).config["task"], folder and str(folder)
    )


def backbone(name) -> PretrainedBackbone:
    """Return a backbone by its preset, not loaded."""
    return build("backbone", compose_run([f"backbone={name}"]).config["backbone"])


def asked(method, examples, device="cpu"):
    """Return a batch of a method's rows, whatever its answers are."""
    readout = method.readout
    rows = [readout.row(readout.pieces(example), method.room()) for example in examples]
    return collate([Features(str(i), [row], [0]) for i, row in enumerate(rows)], None, device)


def rows_of(name, folder, *overrides):
    """Return a task over the six rows that the tests have of it, train and test the same."""
    return task(name, folder, f"task.source.folder={name}", "task.splits.test=test", *overrides)
