"""Several runs over one backbone answer mixed rows as each answers its own."""

import json
import shutil
import subprocess
import sys

import pytest

import ptrun
from ptrun.errors import UserError
from ptrun.predicting.answering import ready
from ptrun.predicting.prompts import Prompts
from ptrun.predicting.together import Together, together
from tests.predicting.conftest import renamed

LABELS = {
    "prompt_tuning": ["method=prompt_tuning", "method.length=3", "task=pocket_sentiment"],
    "verbalizer": ["method=prompt_tuning", "readout=verbalizer", "task=pocket_sentiment"],
    "ptuning": ["method=ptuning", "task=pocket_sentiment"],
    "ptuning_v2": ["method=ptuning_v2", "method.length=5", "task=pocket_ner"],
    "topics": ["method=ptuning_v2", "task=pocket_two_topics"],
    "lora": ["method=lora", "task=pocket_similarity"],
    "adapter": ["method=adapter", "task=pocket_topics"],
    "manual": ["method=manual_prompt", "task=pocket_sentiment"],
}
MASKED = {**LABELS, "idpg": ["method=idpg", "task=pocket_topics"]}
FACT = "readout.document=Stella Barden often visits Frank Venn on Saturday with her old friends."
CAUSAL = {
    **{k: v for k, v in LABELS.items() if k not in ("ptuning", "ptuning_v2")},
    "prefix": ["method=ptuning_v2", "method.length=6", "task=pocket_writing"],
    "lora_text": ["method=lora", "task=pocket_writing"],
    "vectors": ["method=prompt_tuning", "method.length=2", "task=pocket_writing"],
    "cartridge": ["method=cartridge", "method.length=9", FACT, "task=pocket_writing"],
}
FAMILIES = {
    "pocket_bert": MASKED,
    "pocket_gpt2": CAUSAL,
    "pocket_t5": {k: v for k, v in LABELS.items() if k != "ptuning"},
}
ROWS = "+task.source.rows={train: 16, validation: 8, test: 8}"


@pytest.fixture(scope="module", params=FAMILIES)
def runs(request, tmp_path_factory):
    """Return short runs of a family that learned something each."""
    common = [f"backbone={request.param}", ROWS, f"outputs={tmp_path_factory.mktemp('runs')}"]
    found = []
    for line in FAMILIES[request.param].values():
        own = [] if "method=manual_prompt" in line else ["train.max_steps=3", "train.lr=0.05"]
        own += ["readout.max_new_tokens=8"] if "task=pocket_writing" in line else []
        found.append(ptrun.run(*line, *own, *common))
    return found


def rows_of(run):
    from ptrun.config.compose import compose_run

    task = compose_run([f"task={run.result.names['task']}", ROWS]).components()["task"]
    return [dict(e.fields) for e in task.build(None, None).load("test")]


@pytest.mark.slow
def test_probabilities_of_mixed_rows_are_those_of_each_alone(runs):
    """Before they are rounded, and each alone over a backbone of its own."""
    finished = [ready(str(run.folder), []) for run in runs]
    shared, loaded = together(finished)
    questions = {run.id: loaded[run.id].asked(rows_of(run)) for run in runs}
    examples = {name: [own.example for own in asked] for name, asked in questions.items()}
    jobs = [(name, own) for turn in range(8) for name, rows in examples.items()
            for own in rows[turn : turn + 1]]  # fmt: skip
    found = shared.predict([(loaded[name], own) for name, own in jobs])
    for run in runs:
        single = Together(ready(str(run.folder), []))
        alone = single.predict([(single.first, own) for own in examples[run.id]])
        mixed = [own for (name, _), own in zip(jobs, found, strict=True) if name == run.id]
        for own, wanted in zip(mixed, alone, strict=True):
            assert close(own.value, wanted.value)
            for label, share in (wanted.probabilities or {}).items():
                assert abs(own.probabilities[label] - share) <= 1e-5


def close(own, wanted):
    return abs(own - wanted) <= 1e-5 if isinstance(own, float) else own == wanted


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Return two short runs on GPT-2, one tuned one, and one on BERT."""
    out = tmp_path_factory.mktemp("two")
    common = ["task=pocket_sentiment", ROWS, "train.max_steps=1", f"outputs={out}"]
    lines = [
        ["method=prompt_tuning", "method.length=2", "backbone=pocket_gpt2"],
        ["method=ptuning_v2", "method.length=2", "backbone=pocket_gpt2"],
        ["method=fine_tuning", "backbone=pocket_gpt2", "keep=weights"],
        ["method=prompt_tuning", "method.length=2", "backbone=pocket_bert"],
    ]
    return [ptrun.run(*line, *common) for line in lines]


def test_what_cannot_share_is_refused_by_name(two):
    first, second, tuned, other = two
    rows = [{"run": first.id, "sentence": "a bright film"}]
    for runs, said in (
        ([first, tuned], rf"{tuned.id} tunes or changes the backbone"),
        ([tuned, first], rf"{tuned.id} tunes or changes the backbone"),
        ([first, other], rf"{other.id} was trained on pocket_bert"),
        ([first, first], rf"{first.id} is given twice"),
    ):
        with pytest.raises(UserError, match=said):
            ptrun.predict(runs, rows)
    for row, said in (
        ({"sentence": "a film"}, "row 1: run=None; expected one of"),
        ({"run": tuned.id, "sentence": "a film"}, "expected one of"),
        ({"run": first.id}, rf"row 1 \({first.id}\).*sentence"),
    ):
        with pytest.raises(UserError, match=said):
            ptrun.predict([first, second], [row])


def test_a_server_offers_what_can_share_and_tells_the_rest(two, tmp_path, caplog):
    """The tuned run is the first by name; a run without its tensors is left out, too."""
    first, second, tuned, other = two
    names = [f"{place}-{run.id}" for place, run in enumerate((tuned, first, second, other))]
    for name, run in zip(names, (tuned, first, second, other), strict=True):
        renamed(run.folder, tmp_path / name)
    (tmp_path / "a-copy").mkdir()
    shutil.copy(tuned.folder / "result.json", tmp_path / "a-copy")
    prompts = Prompts([tmp_path], ["hardware=cpu"], most_bytes=10**9, watch=True)
    assert prompts.ids() == names[1:3]
    assert [prompts.get(name).id for name in names[1:3]] == names[1:3]
    told = "\n".join(caplog.messages)
    assert all(told.count(name) == 1 for name in (names[0], names[3], "a-copy"))
    assert "their backbone was tuned" in told and "keep=weights" in told
    alone = Prompts([tmp_path / names[0]], ["hardware=cpu"], most_bytes=10**9, watch=False)
    assert alone.ids() == names[:1]


@pytest.mark.slow
def test_a_server_does_not_begin_with_a_run_that_changes_the_backbone(two, tmp_path, caplog):
    common = ["task=pocket_sentiment", ROWS, "train.max_steps=1", "backbone=pocket_gpt2"]
    changing = ptrun.run("method=ia3", *common, f"outputs={tmp_path / 'out'}")
    renamed(changing.folder, tmp_path / "in" / "0")
    renamed(two[0].folder, tmp_path / "in" / "1")
    prompts = Prompts([tmp_path / "in"], ["hardware=cpu"], most_bytes=10**9, watch=True)
    assert prompts.ids() == ["1"] and "it changes the backbone (serve it alone): 0" in caplog.text
    alone = Prompts([tmp_path / "in" / "0"], [], most_bytes=10**9, watch=False)
    assert alone.ids() == ["0"]
    assert alone.facts("0")["created"] > 0
    (tmp_path / "in" / "0").rename(tmp_path / "gone")
    assert alone.facts("0")["created"] == 0
    (tmp_path / "gone").rename(tmp_path / "in" / "0")


@pytest.mark.slow
def test_the_command_answers_rows_of_several_runs(two, tmp_path):
    first, second, *_ = two
    texts = ["a bright film", "a dull plot"]
    rows = [{"run": r.id[-8:], "sentence": t, "id": t} for t in texts for r in (first, second)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = [sys.executable, "-m", "ptrun", "predict", str(first.folder), str(second.folder)]
    done = subprocess.run(
        [*line, "--input", str(file), "--probabilities"], capture_output=True, text=True, check=True
    )
    found = [json.loads(own) for own in done.stdout.splitlines()]
    assert [(own["run"], own["id"]) for own in found] == [
        (run.id, text) for text in texts for run in (first, second)
    ]
    assert found == ptrun.predict(two[:2], rows, probabilities=True)
    wanted = [r.predict([{"sentence": t}], probabilities=True) for t in texts for r in two[:2]]
    assert [own["probabilities"] for own in found] == [own[0]["probabilities"] for own in wanted]
