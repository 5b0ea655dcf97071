"""Several runs over one backbone answer mixed rows as each answers its own."""

import json
import subprocess
import sys

import pytest

import ptrun
from ptrun.errors import UserError
from ptrun.predicting.answering import ready
from ptrun.predicting.together import Together, together
from tests.predicting.conftest import ROWS

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
    "dept": ["method=dept", "method.length=3", "task=pocket_writing"],
    "both": ["method=prompt_lora", "method.length=4", "task=pocket_writing"],
    "residual": ["method=residual_prompt", "method.hidden=8", "task=pocket_sentiment"],
    "cartridge": ["method=cartridge", "method.length=9", FACT, "task=pocket_writing"],
}
FAMILIES = {
    "pocket_bert": MASKED,
    "pocket_gpt2": CAUSAL,
    "pocket_t5": {k: v for k, v in LABELS.items() if k != "ptuning"},
}


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


@pytest.mark.slow
def test_the_command_answers_rows_of_several_runs(two, tmp_path):
    first, second, *_ = two
    texts = ["a bright film", "a dull plot"]
    names = (first.id[:12], second.id[-8:])
    rows = [{"run": name, "sentence": t, "id": t} for t in texts for name in names]
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
