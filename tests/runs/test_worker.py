"""A worker does the runs of a group one by one after a mistake in one, not on a full disk."""

import errno
import os

import pytest

from ptrun.runs import worker
from ptrun.runs.worker import RunEnd


class Group:
    """Runs that fail together; `asked` has the indices of each attempt."""

    def __init__(self, error):
        self.error, self.asked = error, []

    def run(self, configurations, again):
        self.asked.append(list(configurations))
        if len(configurations) > 1:
            raise self.error
        return [RunEnd(int(index), "finished") for index in configurations]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_on_a_full_disk_a_group_is_left_whole(number):
    group = Group(OSError(number, os.strerror(number), "/full/state.safetensors"))
    ends = worker._attempt(group, {"0": "", "1": ""}, [])
    assert group.asked == [["0", "1"]] and [end.kind for end in ends] == ["failed", "failed"]
    told = f"/full/state.safetensors: {os.strerror(number)}"
    assert all(end.text.startswith(told) for end in ends)


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "gone", "/one/file"), ValueError("mine")])
def test_after_another_error_each_run_is_done_alone(error):
    group = Group(error)
    ends = worker._attempt(group, {"0": "", "1": ""}, [])
    assert group.asked == [["0", "1"], ["0"], ["1"]]
    assert [end.kind for end in ends] == ["finished", "finished"]
