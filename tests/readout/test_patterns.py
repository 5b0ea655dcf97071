"""Which pattern is taken where none is named."""

from types import SimpleNamespace

import pytest

from ptrun.backbone.registry import family_of
from ptrun.errors import UserError
from ptrun.readout.reading import choose
from tests.readout.reading import OF, task

TASKS = ["boolq", "cb", "rte", "copa", "multirc", "wic", "wsc", "record"]


def taken(own, family, *, soft):
    try:
        backbone = SimpleNamespace(
            family=family, architecture=family_of("", {"model_type": OF[family]})
        )
        return choose(own, backbone, soft=soft).name
    except UserError:
        return None


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("soft", [False, True])
def test_patterns_of_glm_change_nothing_for_other_families(name, soft):
    whole, less = task(name), task(name)
    less.pvps = {key: pvp for key, pvp in less.pvps.items() if not key.startswith("glm")}
    for family in ("masked", "causal", "seq2seq"):
        assert taken(whole, family, soft=soft) == taken(less, family, soft=soft)
    assert taken(whole, "infilling", soft=True) == taken(less, "infilling", soft=True)


@pytest.mark.parametrize("name", TASKS)
def test_a_blank_infiller_takes_its_own_pattern(name):
    assert taken(task(name), "infilling", soft=False) == "glm"


def test_without_one_of_its_own_it_takes_the_first_that_suits():
    assert taken(task("sst2"), "infilling", soft=False) == taken(
        task("sst2"), "seq2seq", soft=False
    )
