"""P-tuning v2 with a verbalizer (Table 4): label words at the mask, the head of words frozen."""

import pytest
import torch

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning_v2 import PTuningV2
from tests.readings import reading
from tests.small_runs import engine, sst2

KINDS = ["bert", "roberta", "albert", "deberta", "gpt2", "llama", "t5"]
kinds = pytest.mark.parametrize("kind", KINDS)


WORDS = "{~sentence} the film was {mask}"
LETTERS = "{~sentence}?{words|letters}? it is {mask}"  # to bytes, only letters are one token
BYTES = ("roberta", "deberta", "gpt2")


def task_of(data_dir, kind, pattern=None):
    return sst2(data_dir, pattern or (LETTERS if kind in BYTES else WORDS))


def words(backbone, task, **keys):
    return PTuningV2(backbone, task, length=3, reading=reading("verbalizer"), **keys)


@kinds
def test_no_vectors_read_as_a_manual_prompt_does(tiny, data_dir, kind):
    backbone, task = tiny(kind), task_of(data_dir, kind)
    bare = PTuningV2(backbone, task, length=0, reading=reading("verbalizer"))
    manual = ManualPrompt(backbone, task, reading=reading("verbalizer"))
    features = bare.encode(task.load("train"))
    assert [f.rows for f in features] == [f.rows for f in manual.encode(task.load("train"))]
    batch = engine(backbone)._collate(features)
    outputs = [backbone.forward(m.inputs(batch)).logits for m in (bare, manual)]
    assert torch.equal(*outputs)
    prefixed = words(backbone, task)
    moved = backbone.forward(prefixed.inputs(batch)).logits.detach()
    assert float((moved - outputs[0]).abs().max()) > 1e-4
    assert [f.rows for f in prefixed.encode(task.load("train"))] == [f.rows for f in features]
