"""GLM's presets run on SuperGLUE, on a tiny model with the real vocabulary."""

import json

import pytest
import torch

from ptrun.config.compose import compose_run
from ptrun.papers.tokenizers import add_special, write
from ptrun.runs.launch import launch
from tests.pattern.test_glm import ROWS

pytestmark = pytest.mark.shared

SIZES = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 257, "vocab_size": 50304}
MARKS = {"decoder_start_token_id": 50257, "pad_token_id": 50256}
KINDS = ("cb", "copa", "multirc", "record", "wsc")  # one task of each kind of answer
CELLS = [("ptuning_v2_glm", name) for name in KINDS]
CELLS += [("prompt_tuning_glm", "cb"), ("fine_tuning_glm", "copa")]


@pytest.fixture(scope="module")
def folder(shared, tmp_path_factory):
    from tokenizers import Tokenizer

    from ptrun.papers.models import BlockConfig, BlockLM

    made = Tokenizer.from_file(str(shared / "models" / "tokenizers" / "gpt2" / "tokenizer.json"))
    add_special(made)
    folder = tmp_path_factory.mktemp("glm")
    torch.manual_seed(1)
    BlockLM(BlockConfig(**SIZES, **MARKS)).save_pretrained(folder)
    write(made, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), CELLS)
def test_a_preset_learns_and_answers(folder, tmp_path, method, name):
    place = tmp_path / "superglue" / name
    place.mkdir(parents=True)
    rows = [{**ROWS[name], "id": f"{name}-{i}"} for i in range(4)]
    for split, count in (("train", 4), ("validation", 3)):
        text = "".join(json.dumps(row) + "\n" for row in rows[:count])
        (place / f"{split}.jsonl").write_text(text)
    own = [f"method={method}", f"task={name}", "protocol=paper", "setting=full"]
    where = [f"data_dir={tmp_path}", f"backbone.path={folder}", f"outputs={tmp_path / 'outputs'}"]
    done = launch(compose_run([*own, *where, "train.max_steps=2", "train.eval_every=1"]))
    assert done.status == "finished" and done.manifest["answered"]["dev"] == 3
    assert done.manifest["answered"]["train"] == (8 if name == "copa" else 4)  # swapped copies
    learned = done.learned_parameters
    assert learned["head"] == 0 and (learned["backbone"] > 0) is (method == "fine_tuning_glm")
    wanted = {"ptuning_v2_glm": 100 * 2 * 16, "prompt_tuning_glm": 100 * 16}
    assert learned["prompt"] == wanted.get(method, 0)
