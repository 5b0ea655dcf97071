"""Python values arrive in the configuration as they were given."""

from pathlib import Path

import pytest

from ptrun.api import typed
from ptrun.config.compose import compose_run
from ptrun.config.overriding import parsed
from ptrun.errors import UserError

TEXTS = ["plain", "a b", "it's", 'a "word"', "{~review} It was {mask}.", "a,b", "x=1", "~/data"]
TEXTS += ["true", "null", "12", "1e5", "", "back\\slash", "ends in \\", "quote \\' both", "é", "好"]
VALUES = [True, False, None, 3, -1, 1e-5, 0.5, [1, 2], ["a b", "c"], {"x": "it's"}, *TEXTS]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_read_back_by_hydra(value):
    (override,) = typed([], {"method.note": [value]})
    assert parsed(override) == [value]


def test_dicts_nest_and_reach_the_configuration():
    own = typed(["seed=3"], {"train": {"lr": 1e-2, "max_steps": 5}, "task": "pocket_sentiment"})
    assert own == ["seed=3", "train.lr=0.01", "train.max_steps=5", "task=pocket_sentiment"]
    composed = compose_run(typed(own, {"data_dir": Path("/a b/it's"), "method.length": 7}))
    assert composed.train.lr == 1e-2 and composed.data_dir == "/a b/it's"
    assert composed.config["method"]["length"] == 7 and composed.seed == 3


def test_a_place_with_a_space_is_a_path_for_predictions():
    (override,) = typed([], {"backbone": {"path": "/a b/it's"}})
    assert parsed(override) == "/a b/it's"


WRONG = {
    "no override": (["ptuning_v2"], {}, r"'ptuning_v2': expected 'KEY=VALUE'"),
    "no text": ([], {"seed": {1, 2}}, r"seed: \{1, 2\} is a set; expected a text, a number"),
    "a table": (["experiment=dpt/table1"], {}, r"Type ptrun experiment=dpt/table1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_has_no_form_is_refused(case):
    overrides, values, message = WRONG[case]
    with pytest.raises(UserError, match=message):
        typed(overrides, values)
