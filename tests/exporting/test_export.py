"""A finished run becomes a folder that stock PEFT loads, or nothing is written."""

import json
import re
from dataclasses import replace

import pytest
import torch

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.exporting import export as module
from ptrun.exporting.export import Parity, export
from ptrun.predicting.answering import ready
from ptrun.runs.launch import launch

RUN = ["method=prompt_tuning", "task=pocket_ner", "setting=few_shot_32", "train.max_steps=2"]
FILES = {"README.md", "adapter_config.json", "adapter_model.safetensors"}
FILES |= {"tokenizer.json", "tokenizer_config.json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a short run."""
    outputs = tmp_path_factory.mktemp("outputs")
    done = launch(compose_run([*RUN, "method.length=4", f"outputs={outputs}"]))
    return outputs / "runs" / done.run_id


@pytest.fixture
def run(folder):
    return ready(str(folder), ["hardware.precision=fp32"])


def test_the_folder_has_peft_s_files_and_a_card(run, tmp_path):
    _, gap = export(run, ["hardware=cpu", "hardware.token_budget=64"], tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES
    assert gap.equal and gap.examples == 32
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["peft_type"] == "PROMPT_TUNING" and config["num_virtual_tokens"] == 4
    card = (tmp_path / "out" / "README.md").read_text()
    for text in (
        "license: unknown",
        f"differ from the run's by at most {gap.difference:.1e}",
        "ptrun method=prompt_tuning readout=head backbone=pocket_bert task=pocket_ner",
        f"| test | f1 | {run.done.metrics['test']['f1']:.2f} |",
        "torch 2.",
        "O, B-PER",
    ):
        assert text in card


def test_a_card_has_no_row_of_the_user(run, tmp_path):
    export(run, [], tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    (example,) = module._dev(run, [])[:1]
    assert " ".join(example.fields["tokens"]) not in card and "example example" in card


def test_a_head_that_no_stock_class_has_is_told(tmp_path):
    line = ["method=prompt_tuning", "method.length=4", "task=pocket_sentiment"]
    line.append("readout.pooler=mean")
    done = launch(compose_run([*line, "train.max_steps=2", f"outputs={tmp_path}"]))
    run = ready(str(tmp_path / "runs" / done.run_id), ["hardware.precision=fp32"])
    said, _ = export(run, [], tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for text in (said, card):
        assert "head.safetensors, and stock classes do not find it" in text and "load.py" in text
    (example,) = module._dev(run, [])[:1]
    assert example.fields["sentence"] not in card and "An example text." in card


def test_the_code_of_the_card_runs_and_gives_the_run_s_answer(run, tmp_path, monkeypatch, capsys):
    export(run, [], tmp_path / "out")
    code = re.search(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.S)
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, object] = {}
    exec(code[1], names)
    assert "tensor" in capsys.readouterr().out
    logits = names["logits"]
    (method,) = run.load().values()
    (example,) = map(module._invented, module._dev(run, [])[:1])
    (prediction,) = run.engine.predict([method], [method.encode([example])])[0]
    features = method.encode([example])[0]
    best = logits[0, [column + 4 for column in features.rows[0].reads]].argmax(-1)
    assert [method.task.labels[i] for i in best.tolist()] == prediction.value


def test_an_existing_folder_is_kept(run, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="exists and is not empty"):
        export(run, [], tmp_path)


def test_other_logits_leave_nothing_behind(run, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "parity", lambda *_: Parity(0.5, 1.0, 1, 1))
    with pytest.raises(UserError, match=r"logits differ by 5\.0e-01"):
        export(run, [], tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_run_with_several_prompts_is_refused(run, tmp_path):
    parts = {"P1/prompt.table": torch.zeros(1), "P2/prompt.table": torch.zeros(1)}
    with pytest.raises(UserError, match="learned 2 prompts"):
        export(replace(run, tensors=parts), [], tmp_path / "out")


@pytest.mark.parametrize(
    ("part", "changed", "reason"),
    [
        ("manifest", {"backbone": {"weights": "abc+def"}}, "tuned by another run"),
        ("config", {"backbone": {"layer_norm_eps": 0.01}}, "layer_norm_eps differs"),
        ("config", {"data": "other"}, "the data have changed"),
    ],
)
def test_another_checkpoint_and_changed_data_are_refused(run, tmp_path, part, changed, reason):
    done = replace(run.done, **{part: getattr(run.done, part) | changed})
    with pytest.raises(UserError, match=reason):
        export(replace(run, done=done), [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_peft_it_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setattr("ptrun.method.peft.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'ptrun\[peft\]'"):
        export(run, [], tmp_path / "out")
