"""Runs over a quantized backbone: they learn what they learn over its dense matrices."""

from functools import partial

import pytest
import torch

from ptrun.backbone.base import checksum
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder.result import summary
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.adapter import Adapter
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.idpg import IDPG
from ptrun.method.lora import LoRA
from ptrun.method.peft import PeftMethod, detach
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.runs import recipe
from ptrun.runs.plan import plan
from tests.small_runs import engine, member, sst2
from tests.tiers import package, tiered

METHODS = {
    "prompt_tuning": partial(PromptTuning, length=3),
    "ptuning_v2": partial(PTuningV2, length=3),
    "ptuning_v2_hidden": partial(PTuningV2, length=3, prefix_kind="hidden"),
    "idpg": partial(IDPG, length=3, hidden=8, order=4),
    "adapter": partial(Adapter, hidden=8),
    "lora": partial(LoRA, rank=3),
    "ia3": partial(PeftMethod, config={"peft_type": "IA3"}),
    "vera": partial(PeftMethod, config={"peft_type": "VERA", "r": 3}),
}
KINDS = ("bert", "deberta", "gpt2", "t5")
CELLS = [(kind, name) for i, name in enumerate(METHODS) for kind in ("bert", KINDS[1 + i % 3])]
QUICK = [("bert", "ptuning_v2"), ("bert", "lora"), ("bert", "vera"), ("gpt2", "vera")]
QUICK += [("gpt2", "ptuning_v2"), ("t5", "lora"), ("deberta", "ia3")]
CPU = {"device": "cpu", "token_budget": 40, "checkpointing": False}


def quantized(folder, kind, form="int8"):
    backbone = PretrainedBackbone(name=kind, path=str(folder(kind)), dtype="fp32")
    fit = TorchEngine(backbone, **CPU, precision="fp32", quantization=form)
    fit.load(tuned=False)
    return fit


def losses(fit, make, data, held=None):
    one = member(make, fit.backbone, data, max_steps=3)
    fit.place([one.method])
    before = checksum(fit.backbone.model)
    fit.fit([one])
    assert checksum(fit.backbone.model) == before
    detach(fit.backbone.model)
    return one.journal.losses()


@pytest.mark.parametrize(("kind", "name"), tiered(CELLS, lambda *cell: cell in QUICK))
def test_a_run_learns_as_over_the_dense_matrices(tiny, tiny_folder, data_dir, kind, name):
    fit = quantized(tiny_folder, kind)
    dense = tiny(kind)
    for path, module in dense.architecture.linear_maps(dense.model).items():
        held = fit.backbone.model.get_submodule(path)
        module.weight.data.copy_(held.matrix().T if held.turned else held.matrix())
    own = losses(fit, METHODS[name], sst2(data_dir))
    assert own == pytest.approx(losses(engine(dense), METHODS[name], sst2(data_dir)), rel=2e-5)


def test_what_reads_dense_matrices_is_refused(tiny_folder, data_dir):
    fit = quantized(tiny_folder, "bert")
    with pytest.raises(UserError, match=r"this run tunes the backbone.*method=lora"):
        fit.load(tuned=member(FineTuning, fit.backbone, sst2(data_dir)).method.tunes_backbone)
    dora = partial(PeftMethod, config={"peft_type": "LORA", "use_dora": True, "r": 3})
    with pytest.raises(UserError, match=r"DoRA reads dense matrices.* use IA3, LORA, VERA"):
        dora(fit.backbone, sst2(data_dir))
    t5 = PretrainedBackbone(name="t5", path=str(tiny_folder("t5")))
    with pytest.raises(UserError, match=r"hardware.fp16_scaling=true divides dense weights"):
        TorchEngine(t5, **CPU, precision="fp16", fp16_scaling=True, quantization="int8")


@pytest.mark.slow
def test_it_is_part_of_the_id_and_of_what_a_run_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    typed = ["task=pocket_sentiment", "train.max_steps=2", "train.eval_every=2"]
    plain, own = (
        plan(compose_run([*typed, f"hardware.quantization={form}"])) for form in ("none", "int8")
    )
    assert plain.run_id == plan(compose_run(typed)).run_id != own.run_id
    done = recipe.run(own)
    assert done.manifest["quantization"] == "int8"
    assert done.config["hardware"] == {"precision": "fp32", "quantization": "int8"}
    assert "fp32, int8" in summary(done, tmp_path)


def test_ranks_that_divide_a_model_refuse_it():
    overrides = ["hardware=zero1_mp4", "hardware.quantization=nf4", "hardware.device=cpu"]
    with pytest.raises(UserError, match=r"divided over 4 ranks stay dense"):
        plan(compose_run(overrides))


def test_gradients_of_a_prompt_point_where_dense_ones_do(tiny, tiny_folder, data_dir):
    """The cosine of two gradients; a random model is harder than a pre-trained one."""

    def gradient(fit):
        one = member(METHODS["ptuning_v2"], fit.backbone, sst2(data_dir))
        fit.place([one.method])
        fit._accumulate([one])
        return torch.cat([p.grad.flatten() for p in one.learned.values()])

    plain = gradient(engine(tiny("bert")))
    for form, least in (("int8", 0.999), ("nf4", 0.9)):
        if form == "nf4":
            package("bitsandbytes")
        own = gradient(quantized(tiny_folder, "bert", form))
        assert torch.cosine_similarity(own, plain, dim=0) > least
