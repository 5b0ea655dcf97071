"""What of a configuration is in the id of a run."""

import hashlib

import pytest

from ptrun.config.identity import affecting, canonical, essence, file_name, group_id, run_id

CONFIG = {
    "seed": 3,
    "data_seed": 0,
    "start": "random",
    "trial": None,
    "method": {"length": 2},
    "backbone": {"name": "b", "path": "/x", "dtype": "bf16", "lr": {"full": 1}, "dropout": None},
    "task": {"name": "t", "train": "a.csv", "pattern": None, "quoting": None, "source": None},
    "train": {"lr": 0.1},
}
COMMAND = {"name": "runs", "outputs": "o", "data_dir": "d", "keep": "all", "rerun": True}
COMMAND |= {"tracking": {}, "sweep": {}, "cluster": {}, "expected": {}, "pretraining": {"seed": 1}}
KEPT = {"seed": 3, "data_seed": 0, "method": {"length": 2}, "train": {"lr": 0.1}, "data": "d"}
KEPT |= {"backbone": {"name": "b", "weights": "w"}, "task": {"name": "t", "source": None}}


def test_paths_and_what_a_command_says_of_itself_are_left_out():
    assert affecting({**CONFIG, **COMMAND}, "d", "w") == KEPT


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"start": "run:x"}, {"start": "run:x"}),
        ({"trial": {20: 55.0}}, {"trial": {20: 55.0}}),
        ({"task": {"source": {"_target_": "m.C"}}}, {"task": {}}),
        ({"task": {"source": {"hub": "h"}}}, {"task": {"source": {"hub": "h"}}}),
        ({"task": {"vocabulary": "/a/words.txt"}}, {"task": {"vocabulary": "words.txt"}}),
        ({"task": {"pattern": "{a}"}}, {"task": {"pattern": "{a}"}}),
        ({"task": {"pattern": "@file"}}, {"task": {}}),
        ({"task": {"quoting": "none"}}, {"task": {"quoting": "none"}}),
        ({"task": {"train": {"a": 1}}}, {"task": {"train": {"a": 1}}}),
        ({"backbone": {"dropout": 0.1}}, {"backbone": {"dropout": 0.1, "weights": "w"}}),
    ],
)
def test_what_changes_a_number_is_kept(change, kept):
    found = affecting({**CONFIG, **change}, "d", "w")
    assert found == {**KEPT, **kept}


def test_a_key_at_its_default_or_without_effect_moves_no_id():
    """So a key that a later version adds keeps the runs of this one."""
    content = affecting({**CONFIG, "train": {"lr": 1}}, "d", "w")
    usual, unused = {"train": {"lr": 1, "new": None}, "method": {"x": 2}}, {"method": {"idle"}}
    bare = essence(content, usual, unused)
    for change in ({"train": {"lr": 1, "new": None}}, {"method": {"length": 2, "idle": 3}}):
        assert (
            essence(affecting({**CONFIG, "train": {"lr": 1}, **change}, "d", "w"), usual, unused)
            == bare
        )
    other = affecting({**CONFIG, "train": {"lr": 1, "new": 2}}, "d", "w")
    assert essence(other, usual, unused)["train"] == {"new": 2}


def test_a_file_of_the_method_counts_by_its_content(tmp_path):
    file = tmp_path / "words"
    file.write_text("a")
    found = affecting({**CONFIG, "method": {"words": f"@{file}", "n": 1}}, "d", "w")
    digest = hashlib.sha256(b"a").hexdigest()[:16]
    assert found["method"] == {"words": f"@{digest}", "n": 1}


def test_an_id_names_the_choices_the_seed_and_a_digest():
    names = {"method": "m", "backbone": "b/c", "task": "t", "setting": "s", "protocol": "p"}
    text = canonical(KEPT)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    assert run_id(names, KEPT) == f"m-b%2Fc-t-s-s3-{digest}"
    assert group_id(KEPT) == group_id({**KEPT, "seed": 4}) != group_id({**KEPT, "data_seed": 4})


def test_the_order_of_labels_and_patterns_is_in_the_id():
    """Sorted ones are the rule; the order of other keys is free."""

    def group(**task):
        return group_id({**KEPT, "task": {"name": "t", **task}})

    for key in ("labels", "pvps"):
        ordered = [group(**{key: dict.fromkeys(keys, 1)}) for keys in ("abc", "bac", "cab")]
        assert len(set(ordered)) == 3
        inner = [group(tasks={"x": {key: dict.fromkeys(keys, 1)}}) for keys in ("abc", "bac")]
        assert len(set(inner)) == 2
    free = [group(descriptions=dict.fromkeys(keys, 1)) for keys in ("abc", "bac")]
    assert free[0] == free[1]


def test_canonical_text_orders_keys_and_tells_numbers_from_texts():
    assert canonical({"b": 1, "a": ["é", None]}) == '{"a": ["é", null], "b": 1}'
    assert len({canonical({key: 1}) for key in (0, "0", False, None, "None", 0.5)}) == 6
    assert canonical((1, 2)) == canonical([1, 2]) and canonical({"a": {1}}) == '{"a": "{1}"}'


def test_a_long_name_keeps_its_start_and_has_120_bytes_at_most():
    assert file_name("a" * 120) == "a" * 120 and file_name("a" * 121)[:31] == "a" * 30 + "-"
    assert file_name("a" * 121) != file_name("a" * 122)
    assert len(file_name("a" * 121)) == 30 + 1 + 16
    assert (file_name("a/b"), file_name(".."), file_name("a.b")) == ("a%2Fb", "%2E%2E", "a.b")
