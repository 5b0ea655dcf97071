"""A token without a row in the embedding is found before a step, with token, id and rows."""

import json
import shutil
from pathlib import Path

import pytest

import ptrun
from ptrun.errors import UserError
from ptrun.method import tokenized

SHIPPED = Path(ptrun.__file__).parent / "pocket" / "models" / "pocket_gpt2"


@pytest.fixture
def model(tmp_path):
    """Return a model whose tokenizer has one token more than its embedding has rows."""
    folder = Path(shutil.copytree(SHIPPED, tmp_path / "model"))
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    added = {**content["added_tokens"][-1], "id": rows, "content": "[ORG]", "special": False}
    file.write_text(json.dumps({**content, "added_tokens": [*content["added_tokens"], added]}))
    return folder


def rows(folder, *texts):
    file = folder / "rows.csv"
    lines = [f"a film {i},{'good' if i % 2 else 'bad'}\n" for i in range(30)]
    file.write_text("".join(["text,label\n", *lines, *(f"{text},bad\n" for text in texts)]))
    return file


def options(model, file):
    return {
        "backbone.path": str(model), "method": "prompt_tuning", "task": "csv",
        "task.train": str(file),
        "task.text": "text", "task.label": "label", "train.max_steps": 1,
        "outputs": str(model.parent / "outputs"),
    }  # fmt: skip


@pytest.mark.parametrize("kept", [5000, 4])
def test_a_run_is_refused_before_its_first_step(model, tmp_path, monkeypatch, kept):
    monkeypatch.setattr(tokenized, "KEPT", kept)
    told = r"train-\d+: its text has the token '\[ORG\]' with the id 2800.* has 2,800 rows"
    with pytest.raises(UserError, match=told):
        ptrun.run(**options(model, rows(tmp_path, "we met [ORG] there")))
    assert not (tmp_path / "outputs" / "runs").exists()
    done = ptrun.run(**options(model, rows(tmp_path)))  # no text has it
    with pytest.raises(UserError, match=r"'\[ORG\]' with the id 2800"):
        done.predict([{"text": "again [ORG]"}])
