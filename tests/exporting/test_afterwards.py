"""What a run allows is told before it trains, and is what `ptrun export` then does."""

import json
import shlex
import subprocess
import sys

import pytest

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.exporting.export import export, read_from
from ptrun.exporting.stock_form import afterwards
from ptrun.folder.request import command
from ptrun.planning.preview import preview
from ptrun.predicting.answering import ready
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.sweeps.view import View
from tests.tiers import tiered

CASES = {
    "pocket_sentiment method=ptuning_v2": "export --to peft (PREFIX_TUNING on AutoModel, read",
    "pocket_sentiment method=prompt_tuning": "(PROMPT_TUNING on AutoModel, read by its own",
    "pocket_sentiment method=lora readout.pooler=mean": "on AutoModel, read by its own load.py)",
    "pocket_ner method=lora": "(LORA on AutoModelForTokenClassification)",
    "pocket_ner method=adapter": "no export: PEFT has no adapters between layers",
    "pocket_ner method=fine_tuning": "export --to transformers (AutoModelForTokenClass",
    "pocket_qa method=lora": "no export: no stock class of transformers has its read-out",
    "pocket_sentiment method=fine_tuning keep=none": "type keep=weights",
    "pocket_sentiment method=lora backbone=pocket_t5": "(LORA on AutoModel, read by its own",
    "pocket_sentiment method=prompt_tuning backbone=pocket_t5": "read-out of words",
}


@pytest.mark.parametrize(
    ("typed", "told"), tiered(CASES.items(), lambda typed, told: "pocket_ner" in typed)
)
def test_check_says_what_a_run_allows(typed, told):
    planned = plan(compose_run(f"task={typed}".split()))
    shown = [str(one) for one in preview(planned, afterwards).renderables]
    (line,) = [one for one in shown if one.startswith("afterwards: ")]
    assert told in line.replace("\\", "")


ROWS = [("a good film", "pos"), ("it was bad", "neg")] * 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        (("method=lora", "readout.pooler=mean"), "peft"),
        (("method=prompt_tuning",), "peft"),
        (("method=fine_tuning",), "transformers"),
    ],
)
def test_the_folder_answers_without_ptrun_and_its_card_does_the_run_again(tmp_path, typed, kind):
    rows = "".join(f"{text} {i},{label}\n" for i, (text, label) in enumerate(ROWS))
    file = tmp_path / "rows of mine.csv"
    file.write_text(f"text,label\n{rows}")
    own = [f"task.train={file}", "task=csv", "task.text=text", "task.label=label", "seed=3"]
    composed = compose_run([*own, *typed, "train.max_steps=2", f"outputs={tmp_path}/outputs"])
    done = launch(composed)
    run = ready(str(tmp_path / "outputs" / "runs" / done.run_id), ["hardware.precision=fp32"])
    export(run, [], tmp_path / "out", kind=kind)
    code = "import sys; sys.modules['ptrun'] = None; sys.path.insert(0, '.'); import runpy; "
    code += "sys.argv = ['load.py', 'a good film']; runpy.run_path('load.py', run_name='__main__')"
    line = [sys.executable, "-c", code]
    told = subprocess.run(line, cwd=tmp_path / "out", capture_output=True, text=True, check=True)
    label, _, shares = told.stdout.strip().partition(" ")
    assert label in ("pos", "neg") and set(json.loads(shares)) == {"pos", "neg"}
    (typed_again,) = [
        one
        for one in (tmp_path / "out" / "README.md").read_text().splitlines()
        if one.startswith("ptrun ")
    ]
    again = plan(compose_run(shlex.split(typed_again)[1:]))
    assert again.run_id == done.run_id


def test_the_command_of_a_run_leaves_out_what_is_usual():
    composed = compose_run(["task=pocket_ner", "method=ptuning_v2", "train.lr=0.5", "seed=2"])
    assert command(composed) == (
        "ptrun method=ptuning_v2 backbone=pocket_bert task=pocket_ner setting=full protocol=honest "
        "seed=2 train.lr=0.5"
    )


def test_an_option_that_was_read_from_a_folder_is_named(tiny_folder):
    folder = str(tiny_folder("bert"))
    typed = ["task=pocket_ner", "backbone=minilm_l6", f"backbone.path={folder}"]
    line = command(compose_run(typed))
    assert f"backbone=minilm_l6 backbone.path={folder}" in line.replace(
        " task=pocket_ner setting=full protocol=honest", ""
    )
    assert "+backbone" not in line
    assert plan(compose_run(shlex.split(line)[1:])).run_id == plan(compose_run(typed)).run_id
    backbone = PretrainedBackbone(name="x", hub="some/one", path=folder)
    assert read_from(backbone) == folder and backbone.hub == "some/one"


def test_a_sweep_says_once_what_it_does_not_keep(capsys):
    view = View(20)
    for size in (0, 90_000_000, 90_000_000):
        view.unkept(size)
    assert capsys.readouterr().err == (
        "tuned models are not kept, so ptrun predict and export need keep=weights: 0.09 GB a run, "
        "1.8 GB for 20 runs\n"
    )
