"""Each kind of new task composes and loads its data; the user's own rows are read the same way."""

import json
from pathlib import Path

import pytest
import yaml

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.importing.data import write_new
from ptrun.method.base import check_pair
from ptrun.scaffold.tasks import KINDS, task

pytestmark = pytest.mark.slow

COUNTS = {"train": 200, "dev": 50, "test": 50}
PLAIN = [kind for kind in KINDS if kind != "own"]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def built(name, backbone="backbone=pocket_bert"):
    """Return the task of a run on a backbone."""
    composed = compose_run([f"task={name}", "data_dir=data", backbone])
    parts = composed.components()
    made = parts["task"].build("data", None)
    backbone: PretrainedBackbone = parts["backbone"].build()
    check_pair(parts["method"].target, *composed.readout, backbone, made)
    return made


@pytest.mark.parametrize("kind", PLAIN)
def test_a_sample_of_every_kind_loads(kind):
    write_new(task("mine", kind))
    made = built("mine", *(["backbone=pocket_gpt2"] if kind == "generation" else []))
    most = {"train": 120, "dev": 30, "test": 40} if kind == "tags" else COUNTS  # all that ship
    assert {part: len(made.load(part)) for part in COUNTS} == most
    assert made.name == "mine"
    row = json.loads(Path("data/mine/train.jsonl").read_text().splitlines()[0])
    assert set(row) == {"id", *KINDS[kind][1]}


def test_the_user_may_replace_the_sample_by_rows_of_another_form():
    """The comments name what to change; the fields are the keys of the files."""
    write_new(task("mine", "tagging"))
    text = Path("ptrun_conf/task/mine.yaml").read_text()
    assert all("#" in line for line in text.splitlines() if line[:1] not in (" ", "_", "n"))
    Path("data/mine/train.jsonl").write_text('{"tokens": ["Ann"], "tags": ["B-PER"]}\n')
    assert [e.target for e in built("mine").load("train")] == [["B-PER"]]


def table(rows, name="mine.jsonl"):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Path(name)


TEXTS = [{"review": f"No {i} .", "stars": i % 3, "id": f"r{i}"} for i in range(9)]
CASES = {
    "classification": (TEXTS, ["review", "stars"], ["0", "1", "2"]),
    "pair": (
        [{"a": "x", "b": "y", "same": i % 2 == 0} for i in range(4)],
        ["a", "b", "same"],
        ["false", "true"],
    ),
    "tagging": ([{"w": ["Åse", "left"], "t": ["B-Ø", "O"]}], ["w", "t"], ["O", "B-Ø", "I-Ø"]),
    "tags": ([{"w": ["Åse", "left"], "t": ["PROPN", "N"]}], ["w", "t"], ["N", "PROPN"]),
}


@pytest.mark.parametrize("kind", CASES)
def test_own_rows_are_read_and_their_labels_named(kind):
    rows, columns, labels = CASES[kind]
    write_new(task("mine", kind, table(rows), columns))
    made = built("mine")
    assert list(made.labels) == labels and not made.has("dev") and not made.has("test")
    examples = made.load("train")
    assert [e.id for e in examples] == [r.get("id", f"train-{i}") for i, r in enumerate(rows)]
    assert next(iter(examples[-1].fields.values())) == rows[-1][columns[0]]


def test_numbers_of_a_csv_give_the_bounds():
    Path("mine.csv").write_text("id,first,second,label\na,x,y,0.5\nb,x,z,4.2\n")
    write_new(task("mine", "similarity", Path("mine.csv")))
    node = yaml.safe_load(Path("ptrun_conf/task/mine.yaml").read_text())
    assert (node["low"], node["high"]) == (0, 5)
    assert [e.target for e in built("mine").load("train")] == [0.5, 4.2]


@pytest.mark.parametrize(("answer", "form"), [(1, "index"), ("B", "letter"), ("no", "text")])
def test_the_form_of_an_answer_is_recognized(answer, form):
    row = {"context": "c", "question": "q", "options": ["yes", "no"], "answer": answer}
    write_new(task("mine", "choice", table([row])))
    assert f"answer_is: {form}" in Path("ptrun_conf/task/mine.yaml").read_text()
    assert [e.target for e in built("mine").load("train")] == [1]


OWN = ["review", "stars"]
MANY = [{"text": "x", "label": str(i)} for i in range(30)]
NUMBER = [{"text": 1, "label": "a"}, {"text": "x", "label": "b"}]
OFFSET = {"question": "q", "context": "c", "answers": {"text": ["d"], "answer_start": [0]}}
WRONG = {  # rows of a kind, their columns if they are named, and what is said
    "no such column": ("classification", TEXTS, [], r"no column 'text'(.|\n)*reads text, label"),
    "few columns": ("pair", TEXTS, OWN, "expected 3 different columns"),
    "twice": ("classification", TEXTS, ["review", "review"], "expected 2 different columns"),
    "one label": ("classification", TEXTS[:1], OWN, "labels are 0: 1 different"),
    "no labels": ("classification", MANY, [], "30 different values in 30 rows"),
    "a list": ("classification", [{"text": "x", "label": []}], [], "jsonl:1: the label is empty"),
    "no text": ("classification", NUMBER, [], "mine.jsonl:1: field 'text' is 1; expected text"),
    "no number": ("similarity", [{"first": "x", "second": "y", "label": "nan"}], [], "a number"),
    "tags": ("tagging", [{"tokens": ["x"], "tags": ["B-A", "O"]}], [], "jsonl:1: .* equal length"),
    "parts of speech": ("tagging", [{"tokens": ["x"], "tags": ["N"]}], [], "--kind tags"),
    "no tags": ("tagging", [{"tokens": ["x"], "tags": 3}], [], "jsonl:1: "),
    "offset": ("extraction", [OFFSET], [], "mine.jsonl:1: "),
    "own": ("own", TEXTS, [], "--data is not for --kind own"),
}


@pytest.mark.parametrize("case", WRONG)
def test_rows_that_do_not_fit_are_refused(case):
    kind, rows, columns, told = WRONG[case]
    with pytest.raises(UserError, match=told):
        task("mine", kind, table(rows), columns or None)
