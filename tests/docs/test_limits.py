"""Rows of concepts/limits.md are true: what is not done is refused, as the row says."""

import json
import shutil
from pathlib import Path

import pytest

import ptrun
from ptrun.backbone.files import read_config
from ptrun.backbone.grammar import Grammar
from ptrun.backbone.tokenizers import load
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.plan import plan
from ptrun.serve.structured import Structure
from tests.docs.pages import text
from tests.tiers import package

SHIPPED = Path(ptrun.__file__).parent / "pocket" / "models" / "pocket_gpt2"


def schemas(folder):
    package("llguidance")
    tokenizer = load(SHIPPED, "gpt2")
    for schema in ({"not": {}}, {"if": {}}, {"uniqueItems": True}):
        (key,) = schema
        with pytest.raises(UserError, match=key):
            Grammar(tokenizer, [0], Structure(schema).grammar(None, str))


def quantized(folder):
    copy = Path(shutil.copytree(SHIPPED, folder / "model"))
    config = json.loads((copy / "config.json").read_text())
    more = {"quantization_config": {"quant_method": "mxfp4"}}
    (copy / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(UserError, match="quantization_config"):
        read_config(copy)


def more_steps(folder):
    line = ["task=pocket_sentiment", f"outputs={folder}"]
    ids = {plan(compose_run([*line, f"train.max_steps={n}"])).run_id for n in (2, 3)}
    assert len(ids) == 2


def devices(folder):
    with pytest.raises(UserError, match=r"hardware\.device.*(cpu|cuda)"):
        plan(compose_run(["task=pocket_sentiment", "hardware.device=mps"]))


ROWS = {  # other rows name what tests of their rooms refuse
    "JSON schemas with": schemas,  # calls: readout/test_calls.py
    "Checkpoints with a vision": quantized,  # a vision part: backbone/test_probe.py
    "Training a finished run": more_steps,
    "GPUs other than CUDA": devices,
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_true(row, tmp_path):
    assert f"\n| {row}" in text("concepts/limits.md")
    ROWS[row](tmp_path)
