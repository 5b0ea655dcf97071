"""Lines labelled by a run of ptrun's own: the right model, once, on from where it stopped."""

import json
import random
import shutil

import pytest
import torch

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.papers import labelled
from ptrun.papers.corpus import documents
from ptrun.papers.labelled import Labeller
from ptrun.runs.examples import split_of
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.task.stored import Stored
from ptrun.types import Example
from tests.conftest import WORDS
from tests.papers.ppt.corpora import write

SURE = "task.source.thresholds={first: 0.53, last: 0.52}"
MANY = "task.source.examples={train: 1000, validation: 1000, test: 1000}"


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(labelled, "_SHARD", 16)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return 25 documents of four lines of seven words."""
    draw = random.Random(1)
    lines = [[" ".join(draw.choices(WORDS, k=7)) for _ in range(4)] for _ in range(25)]
    return write(tmp_path_factory.mktemp("corpus"), lines)


@pytest.fixture(scope="module")
def trained(tiny_folder, tmp_path_factory):
    """Return the outputs in which a classifier was trained, its run id, and what it was told."""
    root = tmp_path_factory.mktemp("labeller")
    told = [f"backbone.path={tiny_folder('bert')}", f"outputs={root}", "hardware=cpu"]
    told += ["train.batch_size=4", "train.max_steps=6", "hardware.precision=fp32"]
    rows = [{"sentence": f"a {word} film", "label": i % 2} for i, word in enumerate(WORDS)]
    for split, own in (("train", rows), ("validation", rows[:9]), ("test", rows)):
        lines = "".join(json.dumps(row) + "\n" for row in own)
        (root / "data" / "sst2").mkdir(parents=True, exist_ok=True)
        (root / "data" / "sst2" / f"{split}.jsonl").write_text(lines)
    first = ["task=sst2", f"data_dir={root / 'data'}", "method=fine_tuning", "readout.pooler=none"]
    first += ["train.max_steps=60", "train.lr=3e-3"]
    first += ["backbone.dropout=0", "backbone.attention_dropout=0"]
    return root, launch(compose_run([*told, *first])).run_id, told


@pytest.fixture
def composed(trained, corpus, tmp_path):
    """Return what composes a run that learns on lines, its outputs its own."""
    root, name, told = trained
    own = [*told, f"outputs={tmp_path}", "task=ppt_cls", f"task.source.corpus={corpus}", SURE, MANY]
    own += [f"task.source.labeller=run:{root / 'runs' / name}", "task.source.shares=[70,15,15]"]
    own += ["method=prompt_tuning", "method.length=3"]

    def compose(*overrides):
        return compose_run([*own, *overrides])

    return compose


def shards(planned):
    files = sorted((planned.folder.parents[1] / ".labels").glob("*/0*.arrow"))
    return [list(Stored(file, dict)) for file in files]


@pytest.fixture
def asked(monkeypatch):
    """Return how many lines each call of the model is about, as they come."""
    counts, predict = [], TorchEngine.predict

    def counted(engine, methods, features):
        counts.append(len(features[0]))
        return predict(engine, methods, features)

    monkeypatch.setattr(TorchEngine, "predict", counted)
    return counts


@pytest.mark.slow
def test_one_command_labels_and_learns(composed):
    done = launch(composed("readout=verbalizer"))
    assert done.status == "finished" and done.names["task"] == "ppt_cls"
    assert done.config["task"]["labels"] == {"negative": "negative", "positive": "positive"}
    words = {"negative": ["bad"], "positive": ["good"]}
    assert all(pvp["words"] == words for pvp in done.config["task"]["pvps"].values())


@pytest.mark.slow
def test_lines_have_the_answers_of_the_run_and_only_sure_ones_are_kept(composed, corpus):
    """Against the labeller's own forward, a line at a time, its weights read again from the run."""
    planned = plan(composed())
    split, _ = split_of(planned)
    method = labeller_of(planned).load()[""]
    examples = [*split.train, *split.dev, *split.test]
    kept = {e.fields["text"]: e.target for e in examples}
    rows = [row for head, *own in shards(planned) for row in own]
    seen = {row["text"]: row for row in rows}
    assert kept == {text: row["label"] for text, row in seen.items()}
    for document in documents(str(corpus)):
        for text in document:
            label, share = alone(method, text)
            sure = share > (0.53 if label == "negative" else 0.52)
            assert (text in seen) == sure, "a threshold of its own for each label"
            if sure:
                assert seen[text]["label"] == label
                assert seen[text]["probability"] == pytest.approx(share, abs=2e-4)
    assert {row["label"] for row in rows} == {"negative", "positive"} and len(seen) < 90


def labeller_of(planned):
    lines = planned.task._source.made
    return Labeller.of(lines.labeller, lines.hardware)


@torch.no_grad()
def alone(method, text):
    """Return the label of a text and its probability, the model reading nothing else."""
    tokenizer, model = method.backbone.tokenizer(), method.backbone.model
    batch = tokenizer(text, return_tensors="pt")
    hidden = model.bert(**batch).last_hidden_state[:, 0]
    shares = method.readout.linear(hidden)[0].softmax(dim=-1)
    return method.task.labels[int(shares.argmax())], float(shares.max())


def test_the_labeller_answers_as_it_did_in_its_own_run(composed, trained):
    root, name, _ = trained
    planned = plan(composed())
    labeller = labeller_of(planned)
    method = labeller.load()[""]
    lines = (root / "runs" / name / "predictions.jsonl").read_text().splitlines()
    wanted = [json.loads(line)["prediction"] for line in lines]
    examples = [
        Example(str(i), {"sentence": f"a {word} film"}, "positive") for i, word in enumerate(WORDS)
    ]
    (found,) = labeller.engine.predict([method], [method.encode(examples)])
    assert [answer.value for answer in found] == wanted


@pytest.mark.slow
def test_a_killed_labelling_goes_on_behind_the_last_whole_shard(composed, asked, monkeypatch):
    whole = plan(composed("seed=5"))
    split_of(whole)
    wanted, lines = shards(whole), list(asked)
    for made in (".labels", ".tokens"):
        shutil.rmtree(whole.folder.parents[1] / made)
    asked.clear()
    write = labelled.RowShards.write

    def killed(shards, number, *rest):
        if number == 3:
            raise KeyboardInterrupt
        write(shards, number, *rest)

    monkeypatch.setattr(labelled.RowShards, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        split_of(plan(composed()))
    assert asked == lines[:4] and shards(whole) == wanted[:3]
    monkeypatch.setattr(labelled.RowShards, "write", write)
    asked.clear()
    split_of(plan(composed()))
    assert asked == lines[3:] and shards(whole) == wanted and len(wanted) == 7


@pytest.mark.slow
def test_nothing_is_labelled_twice_and_more_examples_are_more_shards(composed, asked):
    few = "task.source.examples={train: 9, validation: 1, test: 1}"
    first, _ = split_of(plan(composed(few)))
    before = len(asked)
    again, _ = split_of(plan(composed(few, "seed=2", "method=ptuning_v2")))
    parts = [[list(part) for part in (s.train, s.dev, s.test)] for s in (first, again)]
    assert parts[0] == parts[1] and len(first.train) == 9 and 0 < len(asked) == before < 6
    more, _ = split_of(plan(composed()))
    assert list(more.train[:9]) == list(first.train) and len(asked) == 7


def test_a_line_is_in_one_split_only(composed, tmp_path):
    """Also where documents repeat it."""
    lines = [[f"a film was good in {word}", "the plot is"] for word in WORDS]
    corpus = write(tmp_path / "twice", lines * 2)
    low = "task.source.thresholds={first: 0.5, last: 0.5}"
    split, overlaps = split_of(plan(composed(f"task.source.corpus={corpus}", low)))
    assert overlaps.shared == {} and len(split.train) > 2
    texts = [e.fields["text"] for e in split.train]
    assert "the plot is" not in texts, "too few tokens"


@pytest.mark.slow
def test_what_the_labels_depend_on_is_in_their_folder_s_name(composed, corpus, trained, tmp_path):
    """The thresholds, and the labeller: what it learned or, if it learns nothing, what it asks."""

    def named(*overrides):
        planned = plan(composed(*overrides))
        return planned.task._source.made.shards, planned.run_id

    moved = shutil.copy(corpus, tmp_path / "moved.jsonl.gz")
    assert named() == named(f"task.source.corpus={moved}")
    lines = ("seed=1", "task.source.thresholds.last=0.6", "seed=2")
    folders, ids = zip(*map(named, lines), strict=True)
    assert folders[0] == folders[2] != folders[1] and len(set(ids)) == 3
    root, _, told = trained
    first = [*told, "task=sst2", f"data_dir={root / 'data'}"]
    asks = [["method=manual_prompt", f"readout.pattern={p}"] for p in ("ppt_pt", "ppt_ft")]
    others = [["method=fine_tuning", "seed=2"], *([*ask, "setting=zero_shot"] for ask in asks)]
    done = [launch(compose_run([*first, *other])).run_id for other in others]
    each = [named(), *(named(f"task.source.labeller=run:{root / 'runs' / i}") for i in done)]
    assert len({shards for shards, _ in each}) == len({run_id for _, run_id in each}) == 4


REFUSED = {
    "labeller=run:nobody": r"task.source.labeller=run:nobody: no finished run",
    "labeller=sst2": r"labeller=sst2: expected a finished run\. Type .*=run:RUN_ID",
    "thresholds.great=0.5": r"thresholds.great: .* first, last, other, neg",
    "thresholds=0.5": r"source.thresholds: expected .*got 0.5",
    "thresholds.last=2": r"thresholds.last is 2; give a probability",
}


@pytest.mark.parametrize(("typed", "told"), REFUSED.items())
def test_what_cannot_label_is_refused_before_anything_is_done(composed, typed, told, tmp_path):
    with pytest.raises(UserError, match=told):
        plan(composed(f"task.source.{typed}"))
    assert not list(tmp_path.iterdir())


def test_a_task_that_has_no_labeller_says_what_to_type(composed):
    with pytest.raises(UserError, match=r"task.source.labeller=.*: expected run:RUN_ID"):
        split_of(plan(composed("task.source.labeller='run:'")))


def test_a_run_that_labels_pairs_is_refused(composed, trained, tmp_path):
    root, name, _ = trained
    folder = shutil.copytree(root / "runs" / name, tmp_path / "pairs")
    result = json.loads((folder / "result.json").read_text())
    result["config"]["task"]["fields"] = ["sentence", "other"]
    result["names"]["task"] = "cb"
    del result["digest"]  # it would tell
    (folder / "result.json").write_text(json.dumps(result))
    with pytest.raises(UserError, match=r"its task, cb, does not label one text"):
        plan(composed(f"task.source.labeller=run:{folder}"))
