"""Many examples are tokenized when they are read, and train like a list of them."""

import pytest

from ptrun.config.schema import TrainConfig
from ptrun.method import tokenized as module
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.method.tokenized import Tokenized, tokenized
from ptrun.training.member import Member, batches
from tests.small_runs import Memory, conll03, sst2


@pytest.fixture(params=[sst2, conll03])
def both(request, tiny, data_dir):
    task = request.param(data_dir)
    return PTuningV2(tiny(), task, length=2), task.load("train")


def test_rows_are_those_of_a_list(both):
    method, examples = both
    wanted, found = method.encode(examples), Tokenized(method, examples)
    assert len(found) == len(wanted)
    assert list(found) == wanted == found[:] and found[1:3] == wanted[1:3]
    assert found[2] == wanted[2] and found.pick([3, 0]) == [wanted[3], wanted[0]]


def test_few_examples_are_a_list_and_many_are_not(both, monkeypatch):
    method, examples = both
    assert isinstance(tokenized(method, examples), list)
    monkeypatch.setattr(module, "KEPT", len(examples) - 1)
    assert isinstance(tokenized(method, examples), Tokenized)


def test_nothing_is_tokenized_that_no_step_reads(both, monkeypatch):
    """An order of batches reads one row, to know whether there are several data sets."""
    method, examples = both
    seen, encode = [], method.readout.encode
    monkeypatch.setattr(
        method.readout, "encode", lambda own, room: seen.extend(own) or encode(own, room)
    )
    found = Tokenized(method, examples)
    order = batches(found, 2, 1, 0)
    assert len(seen) == 1
    module.picked(found, order[1])
    assert len(seen) == 3


def test_a_part_is_read_later_and_a_short_run_reads_no_more_ahead(both, monkeypatch):
    """Steps may be millions: what training reads is not tokenized to know it."""
    method, examples = both
    wanted, found = method.encode(examples), Tokenized(method, examples)
    assert list(found.part([3, 1, 1]).part([0, 2])) == [wanted[3], wanted[1]]
    settings = TrainConfig(max_steps=2, batch_size=2)
    args = (found[:1], lambda _: {"f1": 0.0}, "f1", settings, 1, Memory())
    own = Member(method, found, *args)
    seen, encode = [], method.readout.encode
    monkeypatch.setattr(
        method.readout, "encode", lambda some, room: seen.extend(some) or encode(some, room)
    )
    reads = own.reads()
    assert len(reads) == 4 and len(seen) <= 1  # one row says whether there are several data sets
    assert [f.id for f in reads][:2] == [f.id for f in own.batch()]
