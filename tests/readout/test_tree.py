"""Trees of classes: read in every form, made balanced, refused with what is wrong."""

import re

import pytest

from ptrun.errors import UserError
from ptrun.readout.class_tree import made_tree, paths, read_tree

LABELS = ["cat", "dog", "saw", "knife", "razor"]
TREE = {
    "animal": {"cat": None, "dog": None},
    "tool": {"saw": None, "cutter": {"knife": None, "razor": None}},
}
FORMS = {
    "comments and a mapping": """
animal: [cat, dog]  # tame
tool:
  saw:
  cutter: [knife, razor]
""",
    "a list of entries": "- animal: [cat, dog]\n- tool: [saw, cutter: [knife, razor]]\n",
    "json": '{"animal": ["cat", "dog"], "tool": ["saw", {"cutter": ["knife", "razor"]}]}',
}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_read_in_every_form(tmp_path, form):
    (tmp_path / "tree.yaml").write_text(FORMS[form])
    assert read_tree(f"@{tmp_path}/tree.yaml", LABELS) == TREE


def test_a_tree_in_the_configuration_needs_no_file():
    assert read_tree({"animal": ["cat", "dog"], "tool": TREE["tool"]}, LABELS) == TREE
    assert read_tree(["dog", "cat"], ["cat", "dog"]) == {"dog": None, "cat": None}


def test_a_path_names_the_words_on_the_way():
    found = paths(TREE)
    assert found["razor"] == ["tool", "cutter", "razor"] and found["saw"] == ["tool", "saw"]
    assert set(found) == set(LABELS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"animal": ["cat"], "tool": LABELS[2:]}, r"'animal' has cat below it, but a node needs"),
        ({"animal": [], "tool": LABELS}, r"'animal' has nothing below it"),
        ({"animal": ["cat", "dog"], "tool": ["saw", "knife"]}, r"the tree lacks razor$"),
        ([*LABELS, {"more": ["saw", "cat"]}], r"the tree repeats cat, saw$"),
        (["cat", "cat", *LABELS], r"'cat' is twice below the root"),
        (
            [*LABELS[:4], "razors"],
            r"lacks razor; has unknown classes: razors; did you mean 'razor'\?$",
        ),
        ([["cat", "dog"], *LABELS[2:]], r"an inner node without a word; write WORD: before it"),
        ([*LABELS, 7], r"7 below the root: a word or label is text: .* in quotes"),
        ({"": ["cat", "dog"], "tool": LABELS[2:]}, r"'' below the root: a word or label is text"),
        ({"animal": "cat", "tool": LABELS}, r"below 'animal' is 'cat'; expected YAML"),
        (3, r"below the root is 3; expected"),
        ("tree.yaml", r"readout.tree=tree.yaml is no tree; expected .*, or @FILE"),
        ("@none.yaml", r"none.yaml"),
    ],
)
def test_what_is_no_tree_over_the_classes_is_refused(given, message):
    with pytest.raises(UserError) as error:
        read_tree(given, LABELS)
    lines = str(error.value).splitlines()
    assert re.search(message, lines[0])
    assert len(lines) == 1 or lines[1].endswith("the 5 classes of the task, each once.")


def test_a_file_is_named_with_what_is_wrong_in_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "tree.yaml"
    file.write_text("animal: [cat, dog]\nanimal: [saw, knife]\n")
    with pytest.raises(UserError, match=r"^tree.yaml: not YAML \(the key animal is repeated, l"):
        read_tree("@tree.yaml", LABELS)
    with pytest.raises(UserError, match=r"is a file; type readout.tree=@tree.yaml;"):
        read_tree("tree.yaml", LABELS)
    file.write_text("[cat, dog]")
    with pytest.raises(UserError, match=r"^tree.yaml: the tree lacks saw, knife, razor"):
        read_tree("@tree.yaml", LABELS)


def widths(tree):
    """Return how many children each node has, and how far each leaf is."""
    below = [own for own in tree.values() if own]
    return [len(tree), *(w for own in below for w in widths(own))]


@pytest.mark.parametrize("fan_out", [2, 3, 7, 16, 300])
@pytest.mark.parametrize("count", [2, 3, 16, 17, 200, 257])
def test_a_made_tree_has_every_label_once_and_as_few_levels_as_fan_out_allows(count, fan_out):
    labels = [f"c{i}" for i in range(count)]
    tree = made_tree({label: f"w{label}" for label in labels}, fan_out)
    levels = next(d for d in range(1, 10) if fan_out**d >= count)
    found = paths(tree)
    assert list(found) == labels and max(map(len, found.values())) == levels
    assert all(2 <= width <= fan_out for width in widths(tree))


def test_a_made_tree_is_balanced_and_calls_a_node_by_its_first_label_s_word():
    tree = made_tree({f"c{i}": f"w{i}" for i in range(200)}, 16)
    assert sorted(widths(tree)) == [13] * 10 + [14] * 5 + [15]
    assert list(tree)[:3] == ["w0", "w13", "w26"] and next(iter(tree["w13"])) == "c13"
    assert made_tree({"a": "x", "b": "y", "c": "z"}, 2) == {
        "a": None,
        "y": {"b": None, "c": None},
    }


@pytest.mark.parametrize("fan_out", [1, 0, -3])
def test_a_node_with_nothing_to_choose_is_not_made(fan_out):
    with pytest.raises(UserError, match=f"readout.fan_out is {fan_out}; a node needs 2"):
        made_tree({"a": "x", "b": "y"}, fan_out)


@pytest.mark.parametrize("given", ["a" * 300, "@~no_such_user/tree.yaml", "@" + "a" * 300])
def test_what_can_be_no_file_s_name_is_told_too(given):
    with pytest.raises(UserError, match=r"is no tree; expected YAML|no such file"):
        read_tree(given, ["a", "b"])
