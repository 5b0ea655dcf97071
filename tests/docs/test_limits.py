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
from tests.docs.pages import ROOT, text
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
    more = {"quantization_config": {"quant_method": "gptq"}}
    (copy / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(UserError, match="quantized by gptq"):
        read_config(copy)


def more_steps(folder):
    line = ["task=pocket_sentiment", f"outputs={folder}"]
    ids = {plan(compose_run([*line, f"train.max_steps={n}"])).run_id for n in (2, 3)}
    assert len(ids) == 2


def devices(folder):
    with pytest.raises(UserError, match=r"hardware\.device.*(cpu|cuda)"):
        plan(compose_run(["task=pocket_sentiment", "hardware.device=mps"]))


ROWS = {
    "JSON schemas with": schemas,
    "Weights quantized by GPTQ": quantized,
    "Training a finished run": more_steps,
    "GPUs other than CUDA": devices,
}
ELSEWHERE = {
    "Keys of a conversation": "task/test_conversation.py: what_is_not_obeyed_is_refused_by_name",
    "An earlier call": "readout/test_chat.py: a_template_that_does_not_say_is_refused",
    "SeamlessM4T": "readout/test_languages.py: a_decoder_that_is_not_told_its_language_is_refused",
    "Images, sound": "task/test_conversation.py: what_is_not_obeyed_is_refused_by_name",
    "One server over": "serve/test_prompts.py: a_server_offers_what_can_share_and_tells_the_rest",
    "Models whose code": "backbone/test_pretrained.py: what_cannot_be_loaded_is_refused_by_name",
    "Pickled weights": "hub/test_pickled.py: an_id_that_is_no_preset_is_refused_with_the_line",
    "A score on test": "cli/test_search.py: a_killed_search_has_the_same_winner_and_test_labels",
}
"""Rows that tests of their rooms try."""


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_true(row, tmp_path):
    ROWS[row](tmp_path)


def test_each_row_is_tried():
    shown = text("concepts/limits.md").partition("| --- | --- |\n")[2].splitlines()
    rows = [*ROWS, *ELSEWHERE]
    assert [line for line in shown if not any(line.startswith(f"| {row}") for row in rows)] == []
    assert len(shown) == len(rows)
    for file, name in (test.split(": ") for test in ELSEWHERE.values()):
        assert f"def test_{name}" in (ROOT / "tests" / file).read_text("utf-8"), file
