"""The devices of a sweep: GPUs by id, or shares of the cores."""

import subprocess

import pytest

from ptrun.errors import UserError
from ptrun.sweeps import scheduler
from ptrun.sweeps.scheduler import slots


def test_a_cpu_is_one_device_unless_it_is_divided():
    assert slots("auto", "cpu") == [None] and slots(3, "cpu") == [None] * 3


@pytest.mark.parametrize("requested", [0, -1, "some", 1.5, True, None])
def test_other_values_are_refused(requested):
    with pytest.raises(UserError, match=f"sweep.devices={requested}"):
        slots(requested, "cpu")


TWO = "GPU 0: H100 (UUID: GPU-a)\nGPU 1: H100 (UUID: GPU-b)\n"
MIG = "  MIG 1g.5gb     Device  0: (UUID: MIG-1)\n  MIG 1g.5gb     Device  1: (UUID: MIG-2)\n"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Say what `nvidia-smi -L` prints; None for a machine without it."""

    def say(listed, nodes=()):
        for node in nodes:
            (tmp_path / node).touch()

        def run(*_, **__):
            if listed is None:
                raise FileNotFoundError("nvidia-smi")
            return subprocess.CompletedProcess([], 0, listed, "")

        monkeypatch.setattr(scheduler, "_DEVICES", tmp_path)
        monkeypatch.setattr(scheduler.subprocess, "run", run)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return say


@pytest.mark.parametrize(
    ("listed", "nodes", "found"),
    [
        (TWO, (), ["0", "1"]),
        (TWO + MIG, (), ["MIG-1", "MIG-2"]),
        (None, ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"), ["0", "1"]),
        (None, (), [None]),
    ],
    ids=["whole", "slices", "container", "none"],
)
def test_every_gpu_or_slice_of_the_machine_gets_a_group(machine, listed, nodes, found):
    machine(listed, nodes)
    assert slots("auto", "cuda") == found


@pytest.mark.parametrize(
    ("visible", "requested", "found"),
    [
        ("1,0", "auto", ["1", "0"]),
        ("1,GPU-b", "auto", ["1", "GPU-b"]),
        ("1,GPU-b", 1, ["1"]),
        ("1,GPU-b", 2, ["1", "GPU-b"]),
        ("-1", "auto", [None]),
        ("", "auto", [None]),
        *((f"0{rest}", "auto", ["0"]) for rest in (",-1,1", ",7,1", ",x,1", ",0")),
    ],
)
def test_cuda_ignores_what_follows_a_device_that_is_not_there(
    machine, monkeypatch, visible, requested, found
):
    machine(TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert slots(requested, "cuda") == found


def test_gpus_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match=r"sweep\.devices=2: 1 GPUs are visible"):
        slots(2, "cuda")
