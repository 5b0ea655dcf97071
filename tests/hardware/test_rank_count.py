"""How many ranks a machine gets, and which worlds a hardware refuses."""

import pytest

from ptrun.config.schema import HardwareConfig
from ptrun.errors import UserError
from ptrun.hardware.start_ranks import check_world, local_ranks


def hardware(width=4, ranks=None, device="auto"):
    return HardwareConfig(device, "fp32", 4096, False, width, ranks)


RANKS = [(hardware(), 0, 4), (hardware(), 8, 8), (hardware(width=1), 0, 1)]
RANKS += [(hardware(width=1), 3, 3), (hardware(ranks=8), 0, 8), (hardware(ranks=4), 8, 4)]
RANKS += [(hardware(device="cpu"), 8, 4), (hardware(width=2, ranks=6, device="cpu"), 1, 6)]


@pytest.mark.parametrize(("given", "gpus", "ranks"), RANKS)
def test_ranks_follow_from_gpus_or_the_model(given, gpus, ranks):
    assert local_ranks(given, gpus) == ranks


@pytest.mark.parametrize(
    ("given", "gpus", "told"),
    [
        (hardware(ranks=6), 0, "hardware.ranks is 6, .* over 4 ranks .*type hardware.ranks=4"),
        (hardware(), 6, "visible GPUs: 6, .*type hardware.ranks=4"),
        (hardware(ranks=8), 4, "hardware.ranks is 8, but 4 GPUs are visible.*hardware.ranks=4"),
        (hardware(), 2, "visible GPUs: 2, .* over 4"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(given, gpus, told):
    with pytest.raises(UserError, match=told):
        local_ranks(given, gpus)


def test_a_world_must_be_whole_copies_of_the_model():
    check_world(hardware(), 8)
    with pytest.raises(UserError, match=r"started 6 ranks, .* over 4"):
        check_world(hardware(), 6)


def test_plain_hardware_refuses_company():
    check_world(hardware(width=None, device="cpu"), 1)
    with pytest.raises(UserError, match=r"started 4 processes.*hardware=zero1"):
        check_world(hardware(width=None, device="cpu"), 4)
