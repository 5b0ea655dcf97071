"""Each row of concepts/limits.md is true: what is not done is refused, as the row says."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import ptrun
from ptrun.backbone.files import locate, read_config
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.predicting.requests import ChatRequest, InvalidRequest, parsed
from ptrun.readout.chat import Chat
from ptrun.readout.head import decoder_start
from ptrun.runs.plan import plan
from ptrun.task.generation import conversation
from ptrun.task.source import Row
from ptrun.task.text_metrics import check_references
from tests.docs.pages import text

TESTS = Path(__file__).parents[1]
SHIPPED = Path(ptrun.__file__).parent / "pocket" / "models" / "pocket_gpt2"
TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
LAST_ONLY = (
    "{% for m in messages %}{% if loop.last or m.role == 'user' %}{{ m.content }}{% endif %}"
)
ASKED = {"model": "a", "messages": TALK[:1]}


def model(folder, **config):
    """Return a copy of a shipped model with other keys in its config.json."""
    copy = Path(shutil.copytree(SHIPPED, folder / "model", dirs_exist_ok=True))
    file = copy / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return copy


def weights_of_turns(folder):
    turns = [TALK[0], {**TALK[1], "tool_calls": [{"id": "a"}]}]
    for row in ({"m": turns}, {"m": TALK, "weight": 1}):
        with pytest.raises(UserError, match=r"tool_calls|weight is 1"):
            conversation(Row("here", row), "m")


def rewritten_turns(folder):
    copy = model(folder)
    (copy / "chat_template.jinja").write_text(LAST_ONLY + "{% endfor %}")
    chat = Chat(PretrainedBackbone(name="m", path=str(copy)))
    with pytest.raises(UserError, match="writes an earlier turn in another way"):
        chat.rows([([*TALK, TALK[0]], "c")])


def structured_output(folder):
    for key, value in (("tools", [{}]), ("response_format", {"type": "json_object"}), ("n", 2),
                       ("logprobs", True)):  # fmt: skip
        with pytest.raises(InvalidRequest, match=f"^{key}"):
            parsed(ChatRequest, {**ASKED, key: value})


def scripts(folder):
    for metric, reference in (("rougeL", "сегодня хорошая погода"), ("bleu", "今天天气很好" * 4)):
        with pytest.raises(UserError, match="chrf"):
            check_references([metric], [[reference]])


def languages(folder):
    for kind in ("mbart", "nllb-moe", "m2m_100"):
        backbone = SimpleNamespace(name="m", config={"model_type": kind})
        with pytest.raises(UserError, match=f"type {kind} reads the language"):
            decoder_start(backbone)


def vision_and_quantized(folder):
    copy = model(folder, model_type="gemma3", vision_config={"hidden_size": 8})
    with pytest.raises(UserError, match="vision_config"):
        plan(compose_run(["task=pocket_sentiment", f"backbone.path={copy}"]))
    with pytest.raises(UserError, match="quantization_config"):
        read_config(model(folder, quantization_config={"quant_method": "mxfp4"}))


def images(folder):
    turn = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}
    with pytest.raises(InvalidRequest, match="image_url"):
        parsed(ChatRequest, {"model": "a", "messages": [turn]})
    with pytest.raises(UserError, match="expected a list"):
        conversation(Row("here", {"m": [turn, TALK[1]]}), "m")


def more_steps(folder):
    line = ["task=pocket_sentiment", f"outputs={folder}"]
    ids = {plan(compose_run([*line, f"train.max_steps={n}"])).run_id for n in (2, 3)}
    assert len(ids) == 2


def devices(folder):
    with pytest.raises(UserError, match=r"hardware\.device.*(cpu|cuda)"):
        plan(compose_run(["task=pocket_sentiment", "hardware.device=mps"]))


def remote_code(folder):
    with pytest.raises(UserError, match="remote code"):
        read_config(model(folder, auto_map={"AutoModel": "a.B"}))


def pickled(folder):
    copy = model(folder)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(UserError, match="ptrun import hf"):
        locate(None, str(copy))


ROWS = {
    "Tool calls": weights_of_turns,
    "Several answers to a conv": rewritten_turns,
    "Structured output": structured_output,
    "ROUGE": scripts,
    "Models that read a token": languages,
    "Checkpoints with a vision": vision_and_quantized,
    "Images": images,
    "Training a finished run": more_steps,
    "One server over several": (
        "predicting/test_together.py",
        "test_a_server_offers_what_can_share_and_tells_the_rest",
    ),
    "GPUs other than CUDA": devices,
    "Models whose code": remote_code,
    "Pickled weights": pickled,
    "A score on test": (
        "sweeps/test_search.py",
        "test_a_trial_whose_dev_set_is_reported_is_refused",
    ),
}


def test_every_row_has_a_test():
    rows = re.findall(r"^\| ([A-Z][^|]*) \|", text("concepts/limits.md"), re.MULTILINE)
    assert len(rows) == len(ROWS)
    assert all(row.startswith(start) for row, start in zip(rows, ROWS, strict=True))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_true(row, tmp_path):
    if isinstance(ROWS[row], tuple):  # a longer test that is done elsewhere
        file, name = ROWS[row]
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8")
    else:
        ROWS[row](tmp_path)
