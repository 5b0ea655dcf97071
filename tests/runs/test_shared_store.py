"""A state that was divided among processes, found by another number of them."""

import pytest
import torch

from ptrun.errors import UserError
from ptrun.folder.store import RunStore
from ptrun.hardware.ranks import Ranks
from ptrun.runs.record import SharedStore
from ptrun.tracking.trackers import Trackers

BOUND = {"name": "b", "revision": "1", "weights": "w"}


@pytest.fixture
def shared(tmp_path):
    tracker = Trackers(tmp_path, "id", {})
    return SharedStore(tmp_path, BOUND, tracker, world=Ranks(), tuned=True)


def test_one_process_refuses_what_two_saved(shared):
    RunStore.draft(shared, {}, {"step": 1, "ranks": 2, "model_parallel": 1})()
    with pytest.raises(UserError, match=r"saved by 2 ranks.*Start as many, or type rerun=true"):
        shared.restore()


def test_one_process_goes_on_from_what_it_saved(shared):
    shared.draft({"learned.w": torch.ones(2)}, {"step": 1})()
    tensors, meta = shared.restore()
    assert torch.equal(tensors["learned.w"], torch.ones(2)) and meta["step"] == 1
