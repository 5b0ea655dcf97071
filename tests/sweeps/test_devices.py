"""The devices of a sweep: GPUs by id, or shares of the cores."""

import pytest

from ptrun.errors import UserError
from ptrun.sweeps.devices import slots


def test_a_cpu_is_one_device_unless_it_is_divided():
    assert slots("auto", "cpu") == [None] and slots(3, "cpu") == [None] * 3


@pytest.mark.parametrize(
    ("requested", "found"), [("auto", ["2", "GPU-5"]), (1, ["2"]), (2, ["2", "GPU-5"])]
)
def test_visible_gpus_are_given_by_id(monkeypatch, requested, found):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5")
    assert slots(requested, "cuda") == found


def test_gpus_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match=r"sweep\.devices=2: 1 GPUs are visible"):
        slots(2, "cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert slots("auto", "cuda") == [None]


@pytest.mark.parametrize("requested", [0, -1, "some", 1.5, True, None])
def test_other_values_are_refused(requested):
    with pytest.raises(UserError, match=f"sweep.devices={requested}"):
        slots(requested, "cpu")
