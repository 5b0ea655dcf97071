"""One prompt, a head for each data set: MPT-2's promises (P-tuning v2 §5)."""

import pytest
import torch

from ptrun.method.ptuning_v2 import PTuningV2
from tests.readings import reading
from tests.small_runs import conll03, engine, member, sst2
from tests.task.test_multi import both


def joint(backbone, task, pooler="none"):
    return PTuningV2(backbone, task, length=3, reading=reading("head", pooler=pooler))


def test_a_batch_of_one_set_leaves_the_other_head_without_gradient(tiny, data_dir):
    backbone = tiny()
    one = member(joint, backbone, both(data_dir))
    batch = engine(backbone)._collate([f for f in one.features if f.facts["set"] == "conll03"])
    one.method.loss(backbone.forward(one.method.inputs(batch)), batch).backward()
    heads = one.method.readout.heads
    assert heads["conll03"].linear.weight.grad.abs().sum() > 0
    assert heads["sst2"].linear.weight.grad is None
    assert one.method.prompt.table.grad.abs().sum() > 0


@pytest.mark.parametrize(("kind", "pooler"), [("bert", "none"), ("bert", "mean"), ("t5", "mean")])
def test_answers_and_loss_are_those_of_the_heads_alone(tiny, data_dir, kind, pooler):
    """A mixed batch answers as each data set's own method with the same prompt and head."""
    backbone, task = tiny(kind), both(data_dir)
    torch.manual_seed(0)
    whole = joint(backbone, task, pooler)
    fit = engine(backbone, 10_000)
    features = whole.encode(task.load("test"))
    mixed = fit.predict([whole], [features[::2] + features[1::2]])[0]
    batch = fit._collate(features)
    total = whole.loss(backbone.forward(whole.inputs(batch)), batch)
    losses, answers = [], {}
    for name, make in (("sst2", sst2), ("conll03", conll03)):
        alone = joint(backbone, make(data_dir), pooler if name == "sst2" else "auto")
        state = whole.state_dict()
        head = f"readout.heads.{name}."
        own = {k.replace(head, "readout."): v for k, v in state.items() if k.startswith(head)}
        alone.load_state_dict({**own, "prompt.table": state["prompt.table"]})
        rows = alone.encode(make(data_dir).load("test"))
        part = fit._collate(rows)
        losses.append(alone.loss(backbone.forward(alone.inputs(part)), part))
        answers |= {f"{name}:{p.id}": p.value for p in fit.predict([alone], [rows])[0]}
    torch.testing.assert_close(total, sum(losses), atol=1e-4, rtol=1e-5)
    assert {p.id: p.value for p in mixed} == answers
