"""A family and a kind of task from outside the package: their files are in tests/data/toys."""

import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import Olmo2Config, Olmo2ForCausalLM

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.conftest import SIZES, wordpiece_tokenizer, write_tokenizer
from tests.method.test_every_kind import keeps_the_promises, task_of
from tests.readings import reading, reads
from tests.small_runs import sst2

TOYS = Path(__file__).parents[1] / "data" / "toys"
WORDS = reading("verbalizer")
METHODS = {
    "fine_tuning": FineTuning,
    "lora": partial(LoRA, rank=2),
    "prompt_tuning": partial(PromptTuning, length=3),
    "ptuning_v2": partial(PTuningV2, length=3),
    "ptuning_v2, words": reads(PTuningV2, WORDS, length=3),
}
method = pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(TOYS))
    yield
    from ptrun.readout.heads import HEADS

    HEADS.pop("grade", None)
    for name in ("toy_family", "toy_kind"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made, tokenizer = tmp_path_factory.mktemp("toys") / "model", wordpiece_tokenizer()
    torch.manual_seed(7)
    config = Olmo2Config(vocab_size=tokenizer.get_vocab_size(), **SIZES)
    Olmo2ForCausalLM(config).save_pretrained(made)
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    write_tokenizer(made, tokenizer, special)
    return made


@pytest.fixture
def load(folder):
    from toy_family import toys

    def loaded():
        backbone = PretrainedBackbone(
            name="toy", path=str(folder), dtype="fp32", families={"olmo2": toys()}
        )
        backbone.load()
        return backbone

    return loaded


@pytest.fixture
def grades():
    from toy_kind import Grades

    splits = {"train": "train", "dev": "validation", "test": "test"}
    keys = {"name": "grades", "version": 1, "source": {"folder": "grades"}, "splits": splits}
    return Grades(str(TOYS), field="sentence", grade="grade", top=2, **keys)


@method
def test_a_family_of_one_file_keeps_the_promises(load, data_dir, make):
    keeps_the_promises(make, load, sst2(data_dir, "{~sentence} was {mask}"))


@pytest.mark.parametrize("task", ["squad", "copa", "conll03"])
def test_it_reads_other_kinds_of_task(load, data_dir, task):
    keeps_the_promises(METHODS["ptuning_v2"], load, task_of(data_dir, task))


@pytest.mark.parametrize(
    ("name", "kind"), [*zip(METHODS, ("bert", "gpt2", "t5", "bert"), strict=False)]
)
def test_a_kind_of_task_of_one_file_keeps_the_promises(tiny, grades, name, kind):
    keeps_the_promises(METHODS[name], lambda: tiny(kind), grades)


@pytest.mark.slow
def test_both_run_from_a_project_that_has_their_files(folder, tmp_path, warm):
    shutil.copytree(TOYS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model").symlink_to(folder)
    line = "method=ptuning_v2 backbone=toy task=grades data_dir=. train.max_steps=2"
    done = warm.run(line.split(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ptuning_v2 · model · grades" in done.stdout and "nearness" in done.stdout
