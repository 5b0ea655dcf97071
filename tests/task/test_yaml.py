"""Every task file says what it is, builds, and reads the real data to the last row."""

import re
from collections import Counter
from functools import cache

import pytest

from ptrun.config.build import build, check
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvps
from ptrun.task.dataset import PARTS
from ptrun.task.facts import SEARCHED
from ptrun.task.multilabel import NONE
from tests.composing import task_node

SEVERAL = [name for name in options("task") if name.partition("_")[0] == "multi"] + ["pocket_multi"]
NAMES = [name for name in options("task") if name not in ("csv", "hub", *SEVERAL)]  # the user's own
MADE = ("pocket_", "ppt_", "reasoning_gym")  # by a program
REAL = [name for name in NAMES if not name.startswith(MADE)]
NOT_IN_YAML = {("ccpm", "test"), ("tnews", "test")}  # unlabelled; FewCLUE's, hidden in CLUE
NOT_IN_YAML |= {("c3", "test")}  # the authors', hidden in CLUE
VARIANTS = ("fewglue", "idpg_lowres_100", "idpg_lowres_500", "idpg_lowres_1000")


@cache
def config_of(name):
    return task_node(name)


def folder_of(name):
    return config_of(name)["source"].get("folder", name)


@pytest.mark.parametrize("name", NAMES)
def test_a_task_file_builds_and_says_what_it_is(name):
    config = config_of(name)
    check({"task": config})
    task = build("task", config, None)
    assert task.name == name and task.version >= 1
    assert task.metric and (task.max_tokens is None or task.max_tokens > 0)
    assert list(config["splits"]) == list(PARTS)
    lines = options("task")[name].read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ") and lines[0].endswith(".")
    own = lines[: lines.index("pvps:")] if "pvps:" in lines else lines
    assert all(len(line) <= 120 for line in own)
    stand_in = re.search("Generated|STAND-IN", lines[0])
    stand_in = stand_in or "_target_: ptrun.task.generation.Generation" in lines  # in no paper
    assert stand_in or re.search(r"DPT|IDPG|PPT|P-tuning", lines[0]), "which paper uses it?"
    labels = config.get("labels") or []
    assert all(type(label) is str and not label.isdigit() for label in labels)
    assert len(set(labels if isinstance(labels, list) else labels.values())) == len(labels)
    answers = [*labels, *([NONE] if config["_target_"].endswith("Multilabel") else [])]
    for pvp in read_pvps(config.get("pvps") or {}, answers).values():
        assert set(pvp.pattern.fields) <= columns(config), pvp.name


def columns(config):
    """Return the fields that examples of a task have, as its file says."""
    kind = config["_target_"].split(".")[-1]
    made = {"Extraction": ["question", "context"], "Facts": ["sub_label", "template", *SEARCHED]}
    made |= {"Choice": ["options"], "SpanCheck": ["marked"]}
    made |= {"EntityChoice": ["passage", "query", "entities"]}
    return {*config.get("fields", []), *(config.get("extra") or []), *made.get(kind, [])}


@pytest.mark.parametrize("name", REAL)
def test_splits_are_apart_and_a_source_is_pinned_or_says_how_to_make_the_files(name):
    config = config_of(name)
    splits, papers = config["splits"], config.get("paper_splits")
    elsewhere = {part: own["hub"] for part, own in config.get("sources", {}).items()}
    places = {part: (elsewhere.get(part), split) for part, split in splits.items()}
    published = [place for place in places.values() if place[1] is not None]
    assert splits["train"] == "train" and len(published) == len(set(published)) >= 2
    assert papers is None or (list(papers) == list(PARTS) and papers != splits)
    source = config["source"]
    assert "revision" in source if "hub" in source else source["how"]


def test_labels_that_yaml_read_as_booleans_are_refused():
    config = {**config_of("boolq"), "labels": {False: 0, True: 1}}
    with pytest.raises(UserError, match=r"task boolq: labels are .*Quote yes, no"):
        build("task", config, None)


@pytest.fixture(scope="module")
def manifest(shared):
    """Return rows by (folder, split), and label counts by the same, as MANIFEST.md has them."""
    text = (shared / "data" / "MANIFEST.md").read_text(encoding="utf-8")
    rows, labels = {}, {}
    for folder, cell in re.findall(r"^\| ([\w/]+) \| .*? \| (\w+: .*?) \|", text, re.MULTILINE):
        for split, count in re.findall(r"(train|validation|test): (\d+)", cell):
            rows[folder, split] = int(count)
    for folder, line in re.findall(r"^- ([\w/]+): (.*)$", text, re.MULTILINE):
        for split, found in re.findall(r"(\w+) labels ((?:\d+:\d+ ?)+)", line):
            pairs = (pair.split(":") for pair in found.split())
            labels[folder, split] = {int(raw): int(count) for raw, count in pairs}
    return rows, labels


PART_OF = {"train": "train", "validation": "dev", "test": "test"}  # of a variant's own files


def read(name, shared, split, variant=None):
    """Return the examples of one file: of a split, or of the files of a setting."""
    config, part = config_of(name), PART_OF[split]
    if variant is None:
        splits = {"train": split, "dev": None, "test": None}
        config, part = {**config, "paper_splits": None, "splits": splits}, "train"
    return build("task", config, str(shared / "data"), variant).load(part)


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", REAL)
def test_rows_and_label_counts_are_those_of_the_manifest(shared, manifest, name):
    rows, labels = manifest
    raws = config_of(name).get("labels", {})
    last = folder_of(name).split("/")[-1]
    folders = {None: folder_of(name)} | {v: f"{v}/{last}" for v in VARIANTS}
    present = [
        (variant, where, split)
        for variant, folder in folders.items()
        for where, split in rows
        if where == folder and (where, split) != ("ccpm", "test")
    ]
    if not present:
        pytest.skip(f"shared data: no {folder_of(name)}")
    for variant, folder, split in present:
        examples = read(name, shared, split, variant)
        assert len(examples) == rows[folder, split]
        assert len({e.id for e in examples}) == len(examples)
        found = Counter(e.target for e in examples) if raws else {}
        expected = labels.get((folder, split), {}) if raws else {}
        assert {raws[label]: count for label, count in found.items()} == expected


NAMED = [
    ("boolq", "fewglue", "train", {"yes": 18, "no": 14}),
    ("boolq", None, "validation", {"yes": 2033, "no": 1237}),
    ("cb", "fewglue", "train", {"entailment": 19, "contradiction": 10, "neutral": 3}),
    ("cb", None, "validation", {"entailment": 23, "contradiction": 28, "neutral": 5}),
    ("rte", "fewglue", "train", {"entailment": 13, "not_entailment": 19}),
    ("rte", None, "validation", {"entailment": 146, "not_entailment": 131}),
    ("glue_rte", None, "validation", {"entailment": 146, "not_entailment": 131}),
    ("wic", "fewglue", "train", {"same": 17, "different": 15}),
    ("wsc", "fewglue", "train", {"same": 32}),
    ("wsc", None, "validation", {"same": 38, "different": 66}),
    ("multirc", "fewglue", "train", {"right": 68, "wrong": 86}),
    ("multirc", None, "validation", {"right": 2075, "wrong": 2773}),
    ("glue_mrpc", None, "validation", {"equivalent": 279, "not_equivalent": 129}),
    ("sst2", None, "test", {"negative": 912, "positive": 909}),
]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "variant", "split", "counts"), NAMED)
def test_label_names_count_as_in_the_papers(shared, name, variant, split, counts):
    assert Counter(e.target for e in read(name, shared, split, variant)) == counts


@pytest.mark.shared
def test_a_number_has_the_name_that_the_manifest_gives_it(shared, manifest):
    text = (shared / "data" / "MANIFEST.md").read_text(encoding="utf-8")
    checked = set()
    for name in REAL:
        found = re.search(
            rf"^\| {folder_of(name)} \|.*\blabel ((?:\d [\w/]+[ ;.]*)+)", text, re.MULTILINE
        )
        for number, word in re.findall(r"(\d) ([\w/]+)", found.group(1) if found else ""):
            assert config_of(name)["labels"][word] == int(number), name
            checked.add(name)
    assert checked >= {"ag_news", "chnsenticorp", "glue_qnli", "glue_rte", "mpqa", "mr", "ocnli"}
    assert checked >= {"subj", "online_shopping_zh"}
    assert config_of("cmnli")["labels"] == config_of("ocnli")["labels"]


@pytest.mark.shared
def test_every_folder_of_the_manifest_has_a_task_and_every_split_a_part(shared, manifest):
    folders = {folder_of(name): name for name in REAL}
    for folder, split in manifest[0]:
        first, _, last = folder.partition("/")
        if folder.startswith("corpus_") or first in VARIANTS:
            assert not last or last in {known.split("/")[-1] for known in folders}
        elif (folder, split) not in NOT_IN_YAML:
            assert split in config_of(folders[folder])["splits"].values(), (folder, split)


@pytest.mark.shared
def test_an_unlabelled_test_is_refused_and_not_scored(shared):
    with pytest.raises(UserError, match=r"ccpm.test.jsonl.gz:1: no field 'answer'"):
        read("ccpm", shared, "test")
