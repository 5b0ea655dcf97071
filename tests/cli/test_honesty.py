"""Dev selects, test is scored once: whatever the test labels are, nothing before them changes."""

import json

import pytest
import torch
from safetensors.torch import load_file


def test_poisoned_test_labels_change_nothing_about_selection(ptrun):
    small = [*ptrun.small(), "train.max_steps=8", "train.eval_every=2", "train.lr=3e-2"]
    seen = []
    for name in ("clean", "poisoned"):
        done = ptrun(*small, f"name={name}")
        assert done.returncode == 0, done.stderr
        (file,) = (ptrun.folder / "outputs" / name).rglob("result.json")
        journal = (file.parent / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in journal]
        split = next(i for i, row in enumerate(rows) if row["event"] == "selection_done")
        assert not any("test" in row["event"] for row in rows[:split])
        timeless = [{k: v for k, v in r.items() if "second" not in k} for r in rows[: split + 1]]
        prompt = load_file(file.parent / "prompt.safetensors")
        result = json.loads(file.read_text())
        seen.append((timeless, prompt, result["metrics"]["dev"], result["metrics"]["test"]))
        test = ptrun.data_dir / "sst2" / "test.jsonl"
        rows = [json.loads(line) for line in test.read_text().splitlines()]
        test.write_text("".join(json.dumps(r | {"label": 1 - r["label"]}) + "\n" for r in rows))
    (clean, poisoned) = seen
    assert clean[0] == poisoned[0] and clean[2] == poisoned[2]
    assert all(torch.equal(clean[1][name], poisoned[1][name]) for name in clean[1])
    assert clean[3]["accuracy"] + poisoned[3]["accuracy"] == pytest.approx(100)


@pytest.mark.slow
def test_overlaps_are_told_and_kept_and_a_test_that_equals_dev_is_refused(ptrun):
    done = ptrun(*ptrun.small())
    assert "train/test share 6 texts" in done.stderr
    (file,) = ptrun.results()
    facts = json.loads(file.read_text())["manifest"]
    assert facts["overlaps"]["shared"]["train/dev"] == 5 and facts["selection_bias"] is not None
    own = ptrun.data_dir / "sst2"
    (own / "validation.jsonl").write_text((own / "test.jsonl").read_text())
    refused = ptrun(*ptrun.small(), "name=same")
    assert refused.returncode == 1 and "type protocol=paper" in refused.stderr
    assert ptrun(*ptrun.small(), "name=same", "protocol=paper").returncode == 0


def test_a_setting_without_examples_to_learn_from_is_refused_for_methods_that_learn(ptrun):
    done = ptrun(*ptrun.small(), "setting=zero_shot")
    assert done.returncode == 1 and "setting=zero_shot has no training examples" in done.stderr
