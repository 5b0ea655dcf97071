"""Two results made by hand, and what is told of them."""

import json

import pytest
import torch

from ptrun.errors import UserError
from ptrun.folder.difference import difference
from ptrun.folder.find import find
from tests.command.by_hand import ROWS, made, write_prompt, written


def lines(a, b):
    return difference(find(str(a), "diff"), find(str(b), "diff")).splitlines()


def test_equal_runs_are_equal_to_the_last_bit(tmp_path):
    own, other = made(tmp_path / "a"), made(tmp_path / "b", manifest={"seconds": 99})
    assert lines(own, other)[-1] == (
        "equal to the last bit: metrics, predictions, learned tensors, rows of metrics.jsonl"
    )
    (other / "prompt.safetensors").unlink()
    assert lines(own, other)[-1] == "not compared: no prompt.safetensors in B"


def test_what_should_be_equal_and_is_not_is_said_with_the_first_step(tmp_path):
    own, other = made(tmp_path / "a"), made(tmp_path / "b", versions={"torch": "2.9"})
    rows = [row | {"loss": 0.5000001} if row.get("step") == 2 else row for row in ROWS]
    written(other / "metrics.jsonl", rows)
    write_prompt(other, 3.0)
    text = "\n".join(lines(own, other))
    assert "SHOULD BE EQUAL AND ARE NOT: one configuration, but different learned tensors" in text
    assert "first difference in metrics.jsonl: step 2 (step): loss 0.5 → 0.5000001" in text
    assert "learned tensors that differ: prompt.rows" in text
    assert "differences outside the configuration: versions torch" in text


def test_tensors_that_numpy_does_not_know_are_compared(tmp_path):
    own, other = made(tmp_path / "a"), made(tmp_path / "b")
    for folder in (own, other):
        write_prompt(folder, 1.0, torch.bfloat16)
    assert "learned tensors" in lines(own, other)[-1]
    write_prompt(other, 3.0, torch.bfloat16)
    assert "learned tensors that differ: prompt.rows" in "\n".join(lines(own, other))


def test_a_row_that_one_run_alone_has_is_named(tmp_path):
    own, other = made(tmp_path / "a"), made(tmp_path / "b")
    written(other / "metrics.jsonl", [*ROWS, {"event": "step", "step": 4}])
    assert "step 4 (step): only B has it" in lines(own, other)[-2]


def test_keys_seeds_data_and_metrics_are_told_by_path(tmp_path):
    changed = {"train": {"lr": 0.2}, "seed": 2, "data": "other", "method": {"length": 5}}
    data = {"digest": "other", "train": {"count": 2, "ids_hash": "ff", "ids": ["x"]}}
    own = made(tmp_path / "a")
    other = made(tmp_path / "b", config=changed, run_id="b", manifest={"data": data}, f1=61.25)
    text = "\n".join(lines(own, other))
    assert "configuration\n  train.lr       0.1 → 0.2\n  method.length  - → 5\n" in text
    assert "seeds\n  seed  1 → 2\n" in text
    assert "digest          aa → other" in text and "train.ids_hash  ee → ff" in text
    assert "train.ids " not in text
    assert "test f1  60.00 → 61.25  +1.25" in text and "dev f1   50.00 → 50.00  equal" in text
    assert text.splitlines()[-1].startswith("different configurations: they differ in train.lr")


def test_answers_are_compared_by_id(tmp_path):
    folders = [made(tmp_path / name) for name in "ab"]
    for folder, answer in zip(folders, ("yes", "no"), strict=True):
        rows = [{"id": "1", "prediction": answer, "target": "yes"}]
        written(folder / "predictions.jsonl", [*rows, {"id": answer, "prediction": 0, "target": 0}])
    text = "\n".join(lines(*folders))
    assert "  1 predictions differ\n" in text
    assert "1 examples in both, 1 only in A, 1 only in B" in text
    assert '1: "yes" → "no" (target "yes")' in text


def test_a_failed_run_is_told_as_such(tmp_path):
    own = made(tmp_path / "a")
    other = made(tmp_path / "b", status="failed", reason="loss nan", metrics={})
    text = "\n".join(lines(own, other))
    assert "status  finished → failed" in text and "test f1  60.00 → -" in text
    assert "but different metrics, status" in text


def test_a_run_is_found_by_the_beginning_of_its_id_before_its_reruns(tmp_path):
    outputs = tmp_path / "outputs"

    def run(place):
        return made(outputs / place, run_id=place.partition("/")[2].partition("~")[0])

    first = run("runs/pt-s1-aa")
    run("reruns/pt-s1-aa")
    run("runs/pt-s1-aa~1")
    other = run("runs/pt-s2-bb")
    for given in ("pt-s1", "pt-s1-aa", "runs/pt-s1"):
        assert find(given, "diff", outputs).folder == first
    assert find("reruns/pt-s1", "diff", outputs).folder.parent.name == "reruns"
    assert find(str(other / "result.json"), "diff", outputs).folder == other
    eight = run("runs/pt-s3-0123abcd")
    run("runs/pt-s3-0123abcd~1")
    assert find("0123abcd", "diff", outputs).folder == eight
    with pytest.raises(UserError, match=r"the start of a run id or its last 8 digits"):
        find("123abcd", "diff", outputs)
    with pytest.raises(UserError, match=r"diff pt: 3 runs match. Give one of them: .*pt-s2-bb"):
        find("pt", "diff", outputs)


DAMAGED = r"result\.json: damaged .* Delete it to run again"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("result.json", b"{", DAMAGED),
        ("result.json", {"config": [1]}, DAMAGED),
        ("result.json", None, "this run has not ended. Type its command again to resume it"),
        ("*", None, r"not a run, it has no result\.json or failure\.json"),
        ("predictions.jsonl", b"\xff\xfe", r"predictions\.jsonl: damaged"),
        ("predictions.jsonl", b'{"id": "1"}\n{"id"\n', r"predictions\.jsonl:2: damaged"),
        ("prompt.safetensors", b"x" * 30, r"prompt\.safetensors: damaged .* Type rerun=true"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_type(tmp_path, file, content, said):
    own, other = made(tmp_path / "a"), made(tmp_path / "b")
    for found in list(other.glob(file)):
        if isinstance(content, dict):
            content = json.dumps(json.loads(found.read_text()) | content).encode()
        found.unlink() if content is None else found.write_bytes(content)
    with pytest.raises(UserError, match=said):
        lines(own, other)


def test_what_is_no_run_is_named(tmp_path):
    made(tmp_path / "runs" / "a")
    with pytest.raises(UserError, match=r"holds 1 runs. Give one of them, such as .*/runs/a"):
        find(str(tmp_path / "runs"), "diff")
    with pytest.raises(
        UserError, match=r"no such folder, and no run below .* has an id that starts"
    ):
        find("lost", "diff", tmp_path)
