"""YAML of somebody else: any text is read as plain data, or refused with the file's name."""

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ptrun.config.components import component
from ptrun.config.plain_yaml import load_plain
from ptrun.task.own_pattern import entry
from tests.folder.test_request import BOMB
from tests.fuzz.strategies import JSON, LINES, TEXTS, read_or_refused

MARKS = st.sampled_from([*"{}[]:,&*!|>-?'\"#%@ \n\t", "!!python/name:os.system ", "<<: *a"])
YAMLS = (
    st.lists(MARKS | TEXTS, max_size=12).map("".join)
    | JSON.map(lambda content: yaml.safe_dump(content, allow_unicode=True))
    | LINES
)
KINDS = (dict, list, str, int, float, bool, type(None), bytes)


@settings(deadline=None)  # the longest examples take a second on a busy machine
@given(YAMLS)
@example(BOMB)
@example("a: &a [*a]")
@example("a: 1\na: 2")
@example("[" * 1500)
@example("!!python/object/apply:os.mkdir [owned]")
@example("a: 2024-01-01")
@example("? {a: 1}\n: 2")
@example("? [a]\n: 2")
@example("a: " + "9" * 5000)
@example("a: ${b}")
@example("a: 0x_")
@example("0o_: 1")
def test_any_text_is_plain_data_or_refused(text):
    try:
        found = load_plain(text)
    except (yaml.YAMLError, ValueError) as error:
        assert str(error)
        return
    assert isinstance(found, KINDS)


@settings(deadline=None)
@given(YAMLS)
@example(BOMB)
@example("pattern: '{a} {mask}'\nwords: {a: [b]}")
@example("a: " + "9" * 5000)
def test_any_pattern_file_is_read_or_refused(place, text):
    file = place / "pattern.yaml"
    file.write_text(text, newline="")
    assert isinstance(read_or_refused(entry, f"@{file}") or {}, dict)


DOTTED = st.lists(st.sampled_from(["os", "system", "ptrun", "builtins", "exec", "", "task", "é"]))


@settings(deadline=None)
@given(st.sampled_from(["method", "task", "backbone"]), DOTTED.map(".".join) | JSON)
@example("method", "subprocess.Popen")
@example("task", "ptrun.hardware.processes.subprocess.Popen")
def test_no_target_outside_its_group_is_imported(group, target):
    assert read_or_refused(component, group, target) is None
