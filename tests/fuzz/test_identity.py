"""Identity: equal content has an equal id, any change has another, and an id is a safe name."""

import copy
import random
from pathlib import Path

from hypothesis import assume, example, given
from hypothesis import strategies as st

from ptrun.config.identity import affecting, file_name, group_id, run_id
from tests.fuzz.strategies import JSON, TEXTS

KEYED = st.dictionaries(TEXTS | st.integers(0, 3) | st.booleans(), JSON, max_size=4)
NAMES = {"method": "m", "backbone": "b", "task": "t", "setting": "s"}
CONFIGS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 9),
        "data_seed": st.integers(0, 9),
        "method": st.dictionaries(
            TEXTS, JSON.filter(lambda v: not str(v).startswith("@")), max_size=2
        ),
        "backbone": st.dictionaries(TEXTS, JSON, max_size=2),
        "task": st.dictionaries(TEXTS, JSON | KEYED, max_size=3),
        "train": st.dictionaries(TEXTS, JSON, max_size=2),
        "setting": st.dictionaries(TEXTS, JSON, max_size=2),
    }
)


def shuffled(content, draw, *, kept=False):
    """Return equal content with the keys of mappings in another order, not of labels and pvps."""
    if isinstance(content, dict):
        keys = list(content)
        if not kept:
            draw.shuffle(keys)
        return {k: shuffled(content[k], draw, kept=k in ("labels", "pvps")) for k in keys}
    return [shuffled(one, draw) for one in content] if isinstance(content, list) else content


def places(content, path=()):
    """Yield the places of all values."""
    for key, value in content.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def identity(config):
    return run_id(NAMES, affecting(config, "data", "weights"))


@given(CONFIGS, st.randoms(use_true_random=False))
@example(
    {"seed": 1, "method": {}, "backbone": {}, "task": {"words": {0: "no", "yes": 1, True: 2}}},
    random.Random(1),
)
@example(
    {
        "seed": 1,
        "method": {},
        "backbone": {},
        "task": {k: {"labels": {"b": 0, k: 1}} for k in "ac"},
    },
    random.Random(1),
)
def test_the_order_of_keys_changes_no_id(config, draw):
    assert identity(config) == identity(shuffled(config, draw))
    assert group_id(config) == group_id(shuffled(config, draw))


@given(CONFIGS, st.data())
def test_any_other_value_is_another_run(config, data):
    other = copy.deepcopy(config)
    *path, last = data.draw(st.sampled_from(sorted(places(config), key=repr)))
    assume(not (path[:1] == ["backbone"] and last in left_out("backbone")))
    assume(not (path == ["task"] and last in left_out("task")))
    node = other
    for key in path:
        node = node[key]
    node[last] = {"changed": copy.deepcopy(node[last])} if path else node[last]
    if not path and last in ("seed", "data_seed"):
        node[last] += 1
    assume(node[last] != at(config, [*path, last]))
    assert identity(other) != identity(config)
    assert (group_id(other) == group_id(config)) == ([*path, last] == ["seed"])


def at(content, path):
    for key in path:
        content = content[key]
    return content


def left_out(part):
    """Return the keys that change no number."""
    described = {"path", "dtype", "fp16", "lr", "parameters", "source"}
    return described if part == "backbone" else {"pattern", "train", "dev", "test", "quoting"}


@given(st.one_of(TEXTS, st.text("ab/.~%é猫 \n", max_size=200)))
@example("..")
@example(".")
@example("../../x")
@example("猫" * 100)
def test_a_name_is_one_part_of_a_path(text):
    name = file_name(text)
    assume(name)  # of an empty text
    assert "/" not in name and "\0" not in name and name not in (".", "..")
    assert Path("a", name).resolve().parent == Path("a").resolve()
    assert len(name.encode()) <= 120


@given(TEXTS, TEXTS)
@example("a/b", "a%2Fb")
@example(".", "%2E")
def test_other_texts_have_other_names(one, other):
    assert (file_name(one) == file_name(other)) == (one == other)
