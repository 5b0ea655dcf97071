"""A pattern of one's own: every form reads the same, identity is its content, errors name it."""

from pathlib import Path

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.pattern.pattern import check_pvps
from ptrun.runs.plan import plan
from ptrun.task.own import Own
from tests.task.tables import delimited, reviews
from tests.tiers import tiered

LINE = "{~text} It was {mask}."
WORDS = "words: {negative: [bad], positive: [good]}"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("reviews.csv").write_text(delimited(reviews()))
    return tmp_path


def own(pattern):
    return Own(None, train="reviews.csv", text="text", label="label", pattern=pattern)


def entry(content, name="p.yaml"):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return own(f"@{name}").pvps["own"]


LINES = [LINE, "Review: {~text} Opinion: {mask}", "It was {mask}: {text}", "{text}"]
LINES += [
    "Question: is {text} {mask}",
    "- {text} {mask}",
    "costs ${text} {mask}",
    "写 {text}。{mask}",
]


@pytest.mark.parametrize("line", LINES)
def test_a_file_of_one_line_is_a_pattern(line):
    assert (
        entry(line + "\n") == entry("\ufeff" + line) == own(line).pvps["own"] == {"pattern": line}
    )


def test_a_file_of_keys_is_an_entry():
    found = {"pattern": LINE, "words": {"negative": ["bad"], "positive": ["good"]}, "rule": "first"}
    assert entry(f'# ours\npattern: "{LINE}"\n{WORDS}\nrule: first\n') == found
    assert entry(f'{{pattern: "{LINE}", {WORDS}, rule: first}}') == found
    assert not own(None).pvps


WRONG = {
    "no such label": (
        f'pattern: "{LINE}"\nwords: {{negative: [bad], postive: [good]}}',
        ["label words: missing 'positive', not a label 'postive'", "'negative', 'positive'"],
    ),
    "no such column": ("{~txt} It was {mask}.", ["no field 'txt'; the example has text"]),
    "label as field": ("{label} It was {mask}.", ["no field 'label'; the example has text"]),
    "misspelt key": (f'patern: "{LINE}"\n{WORDS}', ["['patern', 'words']; expected pattern"]),
    "one misspelt key": (f'patern: "{LINE}"', ["['patern']; expected pattern, and words"]),
    "unknown key": (f'pattern: "{LINE}"\ncolour: red', ["colour", "expected pattern, and words"]),
    "no pattern": (WORDS, ["['words']; expected pattern"]),
    "no words": (f'pattern: "{LINE}"\nwords:\n  negative:\n', ["'negative': words are None"]),
    "a truth value": (f'pattern: "{LINE}"\nwords: {{yes: [x], no: [y]}}', ["in quotes"]),
    "unknown rule": (f'pattern: "{LINE}"\n{WORDS}\nrule: most', ["rule is 'most'; allowed"]),
    "open quote": ('pattern: "{~text} {mask}\n' + WORDS, ["not YAML", "line 2", "expected one"]),
    "twice": (f'pattern: "{LINE}"\npattern: "{LINE}"', ["not YAML (the key pattern is repeated"]),
    "a list": ("- {text} {mask}\n- {mask}", ["expected one line such as"]),
    "too deep": ("[" * 5000 + "\n]", ["not YAML"]),
    "a table": (delimited(reviews()), ["found 'text,label", "expected one line such as"]),
    "10 MB": ("x" * 10**7, ["more than 20,000 bytes, no pattern"]),
    "empty": ("", ["pattern '' has no text"]),
    "CP1252": (b"caf\xe9 {text}", ["p.yaml:1: byte 0xe9 at 4", "cp1252 if it says"]),
}


@pytest.mark.parametrize("name", tiered(WRONG, lambda name: name in list(WRONG)[::4]))
def test_a_wrong_file_is_named(name):
    content, told = WRONG[name]
    with pytest.raises(UserError) as raised:
        entry(content)
        task = own("@p.yaml")
        check_pvps(task.pvps, task.labels, task.load("train")[0].fields, task.pvps_from)
    message = str(raised.value)
    assert message.startswith("p.yaml:") and len(message.splitlines()) <= 2
    assert all(words in message for words in told), message


def test_a_file_without_its_at_sign_is_told():
    Path("p.yaml").write_text(LINE)
    with pytest.raises(UserError, match=r"task\.pattern=p\.yaml is a file; type task\.pattern=@p"):
        own("p.yaml")


def test_a_missing_file_names_the_nearest():
    entry(LINE)
    with pytest.raises(UserError, match=r"p\.yml: no such file below .*; did you mean 'p\.yaml'\?"):
        own("@p.yml")
    with pytest.raises(UserError, match="a folder; name one file"):
        own("@.")


def id_of(pattern=None):
    columns = ["task.train=reviews.csv", "task.text=text", "task.label=label"]
    typed = [f"task.pattern={pattern}"] if pattern else []
    return plan(compose_run(["task=csv", *columns, *typed])).run_id


@pytest.mark.slow
def test_what_a_pattern_says_is_in_the_runs_name_and_its_path_is_not():
    entry(LINE, "a.txt")
    here = id_of("@a.txt")
    Path("below it").mkdir()
    entry(f'pattern: "{LINE}"  # the same\n', "below it/b-1.yaml")
    assert id_of("@below it/b-1.yaml") == here != id_of()
    entry("{~text} is {mask}.", "a.txt")
    assert id_of("@a.txt") != here
    assert len({id_of(), id_of(f'"{LINE}"'), id_of('"{~text} is {mask}."')}) == 3
