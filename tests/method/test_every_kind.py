"""P-tuning on every kind of task it answers, in a vocabulary of letters: shared promises.

Only what is learned moves; what is saved answers the same in a fresh method; batch size, order and
company change no answer; four examples are learned. `test_grid` has more families and two kinds,
tests/command/test_grid.py every method and read-out on every kind.
"""

from functools import partial

import pytest
import torch

from ptrun.backbone.base import checksum
from ptrun.backbone.joining import join, split
from ptrun.config.build import build
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.composing import task_node
from tests.readings import reading, reads
from tests.small_runs import engine, member, scores, train_batch
from tests.tiers import tiered

WORDS = {"negative": ["bad"], "positive": ["good"]}
OWN = {
    "sst2": {
        "hard": ("{~sentence} was {mask}", WORDS),
        "soft": ("{~sentence} {soft:2} {mask}", WORDS),
    },
    "copa": {
        "hard": ("{~premise} {question} {masks}", None),
        "soft": ("{~premise} {soft} {masks}", None),
    },
    "lama": {
        "hard": ("{sub_label} in {mask}", None),
        "soft": ("{soft:2} {sub_label} {soft} {mask}", None),
    },
}
HEADS = ["glue_stsb", "copa", "squad", "record", "rte", "multirc", "wsc", "conll03", "srl_up_de"]
METHODS = {
    "fine_tuning": (FineTuning, ["quoref"]),
    "ptuning_v2": (partial(PTuningV2, length=3), [*HEADS, "squad_v2"]),
    "fine_tuning, words": (reads(FineTuning, reading("verbalizer")), ["copa"]),
    "ptuning": (reads(PTuning, reading("verbalizer")), OWN),
    "ptuning, tuned": (partial(PTuning, tune_backbone=True), OWN),
    "ptuning_v2, words": (reads(PTuningV2, reading("verbalizer"), length=3), OWN),
}
CELLS = [
    pytest.param("bert", name, task, id=f"bert-{name}-{task}")
    for name, (_, tasks) in METHODS.items()
    for task in tasks
]
CELLS += [  # its tiny vocabulary has letters alone: answers of several tokens
    pytest.param("blocklm", name, "copa", id=f"blocklm-{name}-copa")
    for name in ("fine_tuning, words", "ptuning_v2, words")
]


def task_of(data_dir, name):
    config = task_node(name)
    pvps = {
        n: {"pattern": p, **({"words": w} if w else {})} for n, (p, w) in OWN.get(name, {}).items()
    }
    return build("task", {**config, "source": {"folder": name}, "pvps": pvps}, str(data_dir))


def same(left, right):
    """Return whether answers are equal; numbers to 1e-4 of rounding."""
    pairs = [(a.value, b.value) for a, b in zip(left, right, strict=True)]
    if isinstance(pairs[0][0], float):
        return all(a == pytest.approx(b, abs=1e-4) for a, b in pairs)
    return left == right


def placed(one):
    fit = engine(one.method.backbone, 10_000)
    fit.place([one.method])
    return fit


def answers(method, examples, budget):
    fit = engine(method.backbone, budget)
    return fit.predict([method], [method.encode(examples)])[0]


@pytest.mark.parametrize(
    ("kind", "name", "task"),
    tiered(CELLS, lambda kind, name, task: kind == "bert" and "ptuning" in name),
)
def test_a_cell_keeps_the_promises(tiny, data_dir, kind, name, task):
    keeps_the_promises(METHODS[name][0], lambda: tiny(kind), task_of(data_dir, task))


def keeps_the_promises(make, load, data, steps=2):
    """Check what all methods promise, with a method, a loaded backbone and a task of a few rows.

    Returns the names of what is learned and did not move.
    """
    one = member(make, load(), data, max_steps=steps)
    backbone, method = one.method.backbone, one.method
    fit = placed(one)
    tuned = {id(p) for p in one.learned.values()}
    still = {
        n: p.detach().clone() for n, p in backbone.model.named_parameters() if id(p) not in tuned
    }
    before, whole = (
        {n: p.detach().clone() for n, p in one.learned.items()},
        checksum(backbone.model),
    )
    fit.fit([one])
    now = dict(backbone.model.named_parameters())
    assert all(torch.equal(now[n], p) for n, p in still.items())
    assert method.tunes_backbone or checksum(backbone.model) == whole
    unmoved = {n for n, p in one.learned.items() if torch.equal(p, before[n])}
    assert not one.learned or unmoved < one.learned.keys()
    examples = data.load("test")
    told = answers(method, examples, 10_000)
    assert same(answers(method, examples[::-1], 1)[::-1], told)
    fresh = make(load(), data)
    engine(fresh.backbone).place([fresh])
    fresh.load_exported(method.exported())
    assert same(answers(fresh, examples, 10_000), told)
    return unmoved


def rows_are_alone(method):
    """Check that a row depends on itself and its key alone, however far it is padded."""
    features, fit = method.encode(method.task.load("train")), engine(method.backbone)
    for keys in (None, torch.arange(len(features)) + 70):
        together = scores(method, fit._collate(features, keys))
        for i, row in enumerate(features):
            alone = fit._collate([row], None if keys is None else keys[i : i + 1])
            torch.testing.assert_close(scores(method, alone)[0], together[i], atol=1e-4, rtol=1e-5)
        other = scores(method, fit._collate(features, torch.arange(len(features)) + 700))
        assert not torch.allclose(other, together, atol=1e-3)


def joined_members_are_alone(members, atol):
    """Check that members of one training pass answer as each alone."""
    batches = [train_batch(m, key) for m, key in zip(members, (1, 50, 90), strict=True)]
    parts = [m.inputs(b) for m, b in zip(members, batches, strict=True)]
    outputs = split(members[0].backbone.forward(join(parts)), parts)
    for method, batch, output in zip(members, batches, outputs, strict=True):
        found, alone = method.readout.scores(output, batch), scores(method, batch)
        torch.testing.assert_close(found, alone, atol=atol, rtol=1e-5)


def learns(make, load, data, steps, lr, share):
    """Check that the loss of four examples, without dropout, falls below a share of itself."""
    first = data.load("train")[:4]
    data.load = lambda part: first

    def learned(count):  # a step is one pass
        one = member(make, load(), data, max_steps=count, eval_every=count, lr=lr)
        fit = placed(one)
        before = loss(fit, one)
        fit.fit([one])
        return loss(fit, one) < share * before

    assert any(learned(count) for count in steps)  # most need few


@torch.no_grad()
def loss(fit, one):
    batch = fit._collate(one.features)
    return float(one.method.loss(one.method.backbone.forward(one.method.inputs(batch)), batch))
