"""Facts: full-vocabulary loss at the mask, the likeliest allowed word, one-token objects."""

import pytest
from torch.nn import functional

from ptrun.pattern.pattern import read_pvp
from ptrun.readout.label_words import FactWords
from ptrun.readout.verbalizer import VerbalizerReading
from ptrun.types import Example
from tests.readout.reading import pocket, read, task

PATTERN = "{template|fact}"


def facts(backbone, data, pattern=PATTERN, **options):
    pvp = read_pvp("own", {"pattern": pattern})
    return FactWords(backbone, data, pvp, VerbalizerReading(**options))


def fact(answer, subject="Ann", relation="P1"):
    fields = {"sub_label": subject, "template": "[X] was in [Y] ."}
    return Example(answer, fields, answer, relation)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_shifted_label_learns_one_position_before_the_answer(shifted):
    backbone, data = pocket("pocket_gpt2"), task("pocket_facts")
    reads = facts(backbone, data, "{template|fact_start}", shifted_label=shifted)
    examples = [e for e in data.load("train")[:9] if bool(reads.answerable([e]))]
    batch, output = read(reads, examples, room=128)
    ends = [len(row.ids) - 1 for row in batch.rows]
    count = 2 if shifted else 1
    assert [row.reads[-1] for row in batch.rows] == ends
    assert [row.reads[0] for row in batch.rows] == [end - count + 1 for end in ends]
    learned, answering = output.logits.view(len(batch), count, -1)[:, [0, -1]].unbind(1)
    wanted = functional.cross_entropy(learned, batch.targets, reduction="sum")
    assert abs(float(reads.loss(output, batch)) - float(wanted)) < 1e-4
    best = answering.argmax(dim=1).tolist()
    right = [
        p.value == e.target for p, e in zip(reads.decode(output, batch), examples, strict=True)
    ]
    assert right == [b == t for b, t in zip(best, batch.targets.tolist(), strict=True)]


def test_masked_backbones_do_not_shift(tiny):
    reads = facts(tiny(), task("lama", "none"), shifted_label=True)
    made = reads.encode([fact("Oslo")], 64)[0]
    mask = reads.backbone.tokenizer().mask_token_id
    assert [made.rows[0].ids[at] for at in made.rows[0].reads] == [mask]
