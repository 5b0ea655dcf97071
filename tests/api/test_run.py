"""A run in Python has what its folder has, and predicts what it predicted."""

import json
from itertools import islice

import pytest

import ptrun
from ptrun.command.predict import main
from ptrun.pocket.tasks import rows
from tests.api.conftest import PRECISE, SIZES


def bare():
    found = islice(rows("pocket_sentiment", "test"), SIZES["test"])
    return [{"sentence": row["sentence"]} for row in found]


def test_its_attributes_are_the_content_of_its_folder(own):
    result = json.loads((own.folder / "result.json").read_text())
    assert own.id == own.folder.name == result["run_id"] and own.seed == 1
    assert own.status == "finished" and own.metrics == result["metrics"]
    lines = (own.folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert own.history == [{k: v for k, v in row.items() if k != "digest"} for row in rows]
    assert {row["event"] for row in own.history} >= {"step", "dev", "test"}
    assert own.config["train"]["max_steps"] == 2
    assert repr(own) == f"<ptrun.Run {own.id}: finished>" and str(own).endswith(str(own.folder))


def test_the_prompt_has_the_documented_shapes(own):
    shapes = {name: tuple(tensor.shape) for name, tensor in own.prompt.items()}
    prefix = shapes.pop("prompt.prefix")
    assert prefix[0] == own.config["method"]["length"] and prefix[1] % 2 == 0
    width = prefix[2] * prefix[3]
    assert shapes == {"readout.linear.weight": (2, width), "readout.linear.bias": (2,)}


def test_answers_are_those_of_the_run_and_of_the_command(own, place, tmp_path, capsys):
    answers = own.predict(bare())
    assert [a["prediction"] for a in answers] == [p["prediction"] for p in own.predictions]
    file = tmp_path / "new.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in bare()))
    main([str(own.folder), "--input", str(file)])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == answers


def test_a_choice_has_its_option_and_a_probability_for_each(place):
    run = ptrun.run(PRECISE, method="ptuning_v2", task="pocket_choice", **place)
    asked = [
        {key: row[key] for key in ("article", "question", "options")}
        for row in islice(rows("pocket_choice", "test"), SIZES["test"])
    ]
    answers = run.predict(asked, probabilities=True)
    assert [a["prediction"] for a in answers] == [p["prediction"] for p in run.predictions]
    for row, answer in zip(asked, answers, strict=True):
        assert answer["option"] == row["options"][answer["prediction"]]
        assert len(answer["probabilities"]) == len(row["options"])
        assert answer["probabilities"][answer["prediction"]] == answer["probability"]


def test_probabilities_are_of_all_labels_and_top_sorts_them(own):
    (answer,) = own.predict(
        [{"id": "mine", "sentence": "a bright film"}], probabilities=True, top=2
    )
    shares = answer["probabilities"]
    assert answer["id"] == "mine" and set(shares) == {"negative", "positive"}
    assert sum(shares.values()) == pytest.approx(1, abs=2e-4)
    assert answer["probability"] == max(shares.values()) == shares[answer["prediction"]]
    assert [one["prediction"] for one in answer["top"]] == sorted(shares, key=lambda k: -shares[k])


WRONG = {
    "no dict": (["a text"], r"row 1: 'a text'; expected a dict such as \{'sentence': \.\.\.\}"),
    "no field": ([{"sentence": "x"}, {"text": "x"}], r"row 2: no field 'sentence'"),
    "null": ([{"sentence": None}], r"row 1: field 'sentence' is null"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_row_is_refused_by_its_number(case, own):
    asked, message = WRONG[case]
    with pytest.raises(ptrun.UserError, match=message):
        own.predict(asked)
    with pytest.raises(ptrun.UserError, match="top is 0; use 1 or more"):
        own.predict([{"sentence": "x"}], top=0)


def test_a_run_without_its_prompt_says_how_to_get_one(own, tmp_path):
    with pytest.raises(ptrun.UserError, match=r"kept no prompt\.safetensors"):
        _ = ptrun.Run(tmp_path, own.result).prompt
