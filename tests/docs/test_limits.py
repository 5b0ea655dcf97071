"""Each row of concepts/limits.md is true: what is not done is refused, as the row says."""

import json
import re
import shutil
from pathlib import Path

import pytest

import ptrun
from ptrun.backbone.files import read_config
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.predicting.requests import ChatRequest, InvalidRequest, parsed
from ptrun.runs.plan import plan
from ptrun.task.text_metrics import check_references
from tests.docs.pages import text

TESTS = Path(__file__).parents[1]
SHIPPED = Path(ptrun.__file__).parent / "pocket" / "models" / "pocket_gpt2"


def structured_output(folder):
    asked = {"model": "a", "messages": [{"role": "user", "content": "a"}]}
    for key, value in (("tools", [{}]), ("response_format", {"type": "json_object"}), ("n", 2),
                       ("logprobs", True)):  # fmt: skip
        with pytest.raises(InvalidRequest, match=f"^{key}"):
            parsed(ChatRequest, {**asked, key: value})


def scripts(folder):
    for metric, reference in (("rougeL", "сегодня хорошая погода"), ("bleu", "今天天气很好" * 4)):
        with pytest.raises(UserError, match="chrf"):
            check_references([metric], [[reference]])


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


LOADED = ("backbone/test_pretrained.py", "test_what_cannot_be_loaded_is_refused_by_name")
ROWS = {  # a function, or a test that is elsewhere
    "Tool calls": ("task/test_generation.py", "test_a_key_of_a_turn_that_is_not_read_is_refused"),
    "Several answers to a": ("readout/test_chat.py", "test_a_template_that_does_not_say_is_refu"),
    "Structured output": structured_output,
    "ROUGE": scripts,
    "Models that read a": ("readout/test_writing.py", "test_a_model_that_wants_a_language_is_refu"),
    "Checkpoints with a vision": quantized,  # a vision part: backbone/test_probe.py
    "Images": ("predicting/test_requests.py", "test_a_turn_that_is_not_read_is_refused_by_its"),
    "Training a finished run": more_steps,
    "One server over": ("predicting/test_together.py", "test_a_server_offers_what_can_share_and"),
    "GPUs other than CUDA": devices,
    "Models whose code": LOADED,
    "Pickled weights": LOADED,
    "A score on test": ("sweeps/test_search.py", "test_a_trial_whose_dev_set_is_reported_is_ref"),
}


def test_every_row_has_a_test():
    rows = re.findall(r"^\| ([A-Z][^|]*) \|", text("concepts/limits.md"), re.MULTILINE)
    assert len(rows) == len(ROWS)
    assert all(row.startswith(start) for row, start in zip(rows, ROWS, strict=True))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_true(row, tmp_path):
    if isinstance(ROWS[row], tuple):
        file, name = ROWS[row]
        assert f"def {name}" in (TESTS / file).read_text(encoding="utf-8")
    else:
        ROWS[row](tmp_path)
