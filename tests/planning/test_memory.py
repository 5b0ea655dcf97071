"""Counts and the sum of memory, against hand counts of 11B models."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ptrun.backbone.base import BackboneInput, DecoderInput
from ptrun.backbone.generation import Decoding, generate
from ptrun.config import build
from ptrun.config.compose import compose_run
from ptrun.config.schema import hardware_config
from ptrun.errors import UserError
from ptrun.planning.costs import Costs, _narrow
from ptrun.planning.memory import (
    HardwareLayout,
    Work,
    count,
    files,
    layout_of,
    memory,
    per_member,
    work,
)
from ptrun.planning.trace import Trace, TracedCase
from tests.readings import method_of

GIB = 2**30
NOTHING = Trace(0, 0, 0, 0, 0)
ONE = Work(8, 8, 1)
GPU = HardwareLayout("gpu", "cuda", "bf16", 16384, checkpointing=False)
ZERO = {"device": "auto", "precision": "auto", "token_budget": 4096, "checkpointing": False}
ZERO |= {"model_parallel": 4, "ranks": None}


def counts_of(data_dir, *overrides):
    composed = compose_run([*overrides])
    with torch.device("meta"):
        task = build.build("task", composed.task, None, None)
        backbone = build.build("backbone", composed.config["backbone"])
        method = method_of(composed, backbone, task)
    return count(method)


@pytest.fixture(scope="module")
def xxl():
    """Return the counts of T5-XXL with a prompt of 100, and tuned in full."""
    own = ["backbone=t5_xxl_lm_adapt", "task=boolq"]
    prompt = counts_of(None, *own, "method=prompt_tuning", "method.length=100")
    return prompt, counts_of(None, *own, "method=fine_tuning")


def test_counts_of_t5_xxl_are_the_published(xxl):
    prompt, full = xxl
    assert prompt.learned["prompt"] == 409_600 and prompt.learned["backbone"] == 0
    assert prompt.total["backbone"] == prompt.held == 11_135_332_352
    assert full.learned["backbone"] == 11_135_332_352 - 32128 * 4096, "its output is not read"
    assert full.tunes and not prompt.tunes


def test_counts_of_cpm_2():
    found = counts_of(None, "backbone=cpm2", "task=lcqmc", "method=ppt")
    assert found.learned["total"] == 409_600
    assert found.total["backbone"] == 11_087_097_856


def test_model_parallelism_divides_the_layers_matrices_and_an_output_of_its_own(xxl):
    prompt, _ = xxl
    a_layer = 4 * 4096 * 4096 + 3 * 4096 * 10240
    layers = 24 * a_layer + 24 * (a_layer + 4 * 4096 * 4096)
    assert prompt.divided == layers + 32128 * 4096


def test_a_frozen_backbone_is_held_once_and_a_prompt_costs_next_to_nothing(xxl):
    prompt, _ = xxl
    found = memory(prompt, NOTHING, GPU, ONE)
    beside = 4 * prompt.learned["total"]
    assert found.weights == 2 * 11_135_332_352 + beside
    assert (found.gradients, found.optimizer, found.best) == (beside, 2 * beside, beside)
    ranks = replace(GPU, zero=True, model_parallel=4, ranks=4)
    divided = memory(prompt, NOTHING, ranks, ONE)
    whole = prompt.held - prompt.divided
    assert divided.weights == 2 * (whole + prompt.divided / 4) + beside
    assert divided.optimizer == 3 * beside, "a master copy too; one data-parallel rank"


def test_full_tuning_in_plain_torch_is_fp32(xxl):
    _, full = xxl
    found = memory(full, NOTHING, GPU, ONE)
    learned = full.learned["total"]
    assert found.gradients == 4 * learned and found.optimizer == 8 * learned
    assert found.activations == 4 * learned, "torch updates all at once on CUDA"
    assert found.standing / GIB > 200


def test_zero_divides_master_and_moments_over_data_parallel_ranks(xxl):
    _, full = xxl
    one = replace(GPU, zero=True, model_parallel=4, ranks=4)
    two = replace(one, ranks=8)
    assert (one.data_parallel, two.data_parallel) == (1, 2)
    alone, shared = (memory(full, NOTHING, own, ONE) for own in (one, two))
    learned = full.learned["total"] - full.learned_divided * 3 / 4
    assert alone.optimizer == 12 * learned and shared.optimizer == 6 * learned
    assert alone.gradients == shared.gradients == 4 * learned  # added up in fp32
    assert alone.weights == shared.weights


def test_the_peak_is_the_sum_and_gradients_stand_where_a_step_has_more_passes(xxl):
    prompt, _ = xxl
    found = memory(prompt, Trace(80, 100, 5, 0, 0), GPU, Work(16, 8, 2))
    assert found.peak == found.standing + found.activations + found.spare
    grads = found.gradients
    big = Trace(8 * grads, 9 * grads, 0, 0, 0)
    assert memory(prompt, big, GPU, Work(16, 8, 2)).activations == 9 * grads
    assert memory(prompt, big, GPU, Work(8, 8, 1)).activations == 8 * grads


def test_the_token_budget_bounds_the_rows_of_a_pass():
    assert work(GPU, 32, 256) == Work(32, 32, 1)
    assert work(replace(GPU, token_budget=2048), 32, 256) == Work(32, 8, 4)
    assert work(replace(GPU, token_budget=100), 32, 256) == Work(32, 1, 32)
    assert work(replace(GPU, ranks=8, model_parallel=4), 32, 256) == Work(16, 16, 1)


def test_files_and_members_are_of_what_is_learned(xxl):
    prompt, _ = xxl
    learned = prompt.learned["total"]
    assert files(prompt) == {
        "prompt.safetensors": 4 * learned,
        "state.safetensors": 16 * learned,
    }
    assert per_member(prompt) == 20 * learned


def test_more_rows_keep_more_but_for_casts_of_weights():
    found = Trace(kept=110, peak=210, logits=4, fixed=10, small=6).scaled(2)
    assert found == Trace(kept=210, peak=410, logits=8, fixed=10, small=12)


def test_a_layout_is_read_from_its_configuration():
    own = layout_of("zero1_mp4", hardware_config(ZERO), "bf16", elsewhere=True)
    assert (own.device, own.precision, own.ranks, own.zero) == ("cuda", "bf16", 4, True)
    assert (
        layout_of("z", hardware_config({**ZERO, "ranks": 8}), "bf16", elsewhere=True).data_parallel
        == 2
    )
    assert (
        layout_of("z", hardware_config({**ZERO, "precision": "fp32"}), "bf16", elsewhere=True).width
        == 4
    )
    own = layout_of("gpu", compose_run(["hardware=gpu"]).hardware, "fp32", elsewhere=False)
    assert (own.device, own.precision, own.ranks, own.zero) == ("cuda", "fp32", 1, False)


def test_heads_that_cannot_be_divided_are_refused():
    assert _narrow({"num_heads": 64, "d_ff": 10240}, 4) == 4
    assert _narrow({"num_attention_heads": 12}, 4) == 1, "counted whole"
    with pytest.raises(UserError, match=r"model_parallel is 3.*d_ff|num_heads"):
        _narrow({"num_heads": 64, "d_ff": 10240}, 3)


@pytest.mark.parametrize("name", ["pocket_gpt2", "pocket_t5"])
def test_the_cache_of_written_texts_is_that_of_the_library(name, monkeypatch):
    import transformers

    made = []
    usual = transformers.DynamicCache.__init__

    def kept(own, *arguments, **options):
        made.append(own)
        usual(own, *arguments, **options)

    monkeypatch.setattr(transformers.DynamicCache, "__init__", kept)
    backbone = build.build("backbone", compose_run([f"backbone={name}"]).config["backbone"])
    backbone.load()
    rows, length, answer = 3, 11, 7
    ids = torch.randint(5, 50, (rows, length))
    decodes = backbone.architecture.has_decoder
    first = DecoderInput(torch.ones(rows, 1, dtype=torch.bool), torch.zeros(rows, 1).long())
    given = BackboneInput(ids=ids, mask=ids > 0, decoder=first if decodes else None)
    generate(backbone, given, Decoding(max_new_tokens=answer))
    found = sum(
        tensor.nbytes
        for own in made
        for layer in own.layers
        for tensor in (layer.keys, layer.values)
    )
    planned = SimpleNamespace(backbone=backbone)
    layout = HardwareLayout("cpu", "cpu", "fp32", rows * (length + answer), checkpointing=False)
    logits = rows * 2 * backbone.config["vocab_size"] * 4
    counted = Costs(planned, length, None, answer=answer)._writing(layout) - logits
    read = length + answer - 1 + decodes  # the last token is not read; a decoder reads its start
    assert found == counted * read / (length + answer)


def test_a_case_is_followed_once_for_all_engines_that_compute_alike(xxl):
    planned = SimpleNamespace(
        backbone=SimpleNamespace(config={}), train=SimpleNamespace(batch_size=32)
    )
    case = TracedCase(0, 128, torch.bfloat16, autocast=False, checkpointing=False, kernel=True)
    costs = Costs(planned, 128, xxl[0], {case: (32, Trace(64, 96, 0, 0, 0))})
    assert costs.memory(GPU).kept == 64
    assert costs.memory(replace(GPU, token_budget=1024)).kept == 16


@pytest.mark.parametrize(("kind", "least", "most"), [("int8", 10.5, 11), ("nf4", 6, 6.3)])
def test_quantized_weights_of_t5_xxl(xxl, kind, least, most):
    held = memory(xxl[0], NOTHING, replace(GPU, quantization=kind), ONE).weights / GIB
    assert least < held < most
    assert memory(xxl[0], NOTHING, GPU, ONE).weights / GIB == pytest.approx(20.7, abs=0.1)


def test_quantized_weights_are_those_of_the_tensors(tiny_folder):
    for kind in ("bert", "albert", "gpt2", "t5"):
        typed = [f"backbone.path={tiny_folder(kind)}", "method=prompt_tuning", "method.length=3"]
        counts = counts_of(None, *typed, "task=pocket_sentiment")
        backbone = build.build("backbone", compose_run(typed).config["backbone"])
        backbone.quantize("int8")
        backbone.load()
        named = [*backbone.model.named_parameters(), *backbone.model.named_buffers()]
        tensors = {id(t): t for n, t in named if not (t.is_meta or n.endswith((".scales", "_ids")))}
        held = sum(t.numel() * t.element_size() for t in tensors.values())
        cpu = replace(GPU, device="cpu", precision="fp32", quantization="int8")
        weights = memory(counts, NOTHING, cpu, ONE).weights
        own = 4 * (counts.learned["prompt"] + counts.learned["head"] + counts.frozen_beside)
        assert weights - own == pytest.approx(held, rel=0.01), kind
