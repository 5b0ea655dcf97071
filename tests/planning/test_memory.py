"""Counts and the sum of memory, against hand counts of 11B models."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.base import BackboneInput, DecoderInput
from ptrun.backbone.generation import Decoding, generate
from ptrun.config import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.planning.memory import (
    HardwareLayout,
    Memory,
    Sizes,
    Work,
    activations,
    layout_of,
    work,
)
from ptrun.readout.base import Features, TokenRow, collate
from tests.readings import method_of
from tests.small_runs import sst2

GIB = 2**30
ONE = Work(1, 1, 8)
GPU = HardwareLayout("cuda", "bf16", 16384, checkpointing=False)


def on_meta(*overrides):
    composed = compose_run([*overrides])
    with torch.device("meta"):
        task = build.build("task", composed.task, None, None)
        backbone = build.build("backbone", composed.config["backbone"])
        return method_of(composed, backbone, task)


@pytest.fixture(scope="module")
def xxl():
    """Return sizes of T5-XXL with a prompt of 100, and tuned in full."""
    typed = ["backbone=t5_xxl_lm_adapt", "task=boolq"]
    prompt = Sizes(on_meta(*typed, "method=prompt_tuning", "method.length=100"))
    return prompt, Sizes(on_meta(*typed, "method=fine_tuning"))


def test_counts_of_t5_xxl_are_the_published(xxl):
    prompt, full = xxl
    assert prompt.learned["prompt"] == 409_600 and prompt.learned["backbone"] == 0
    assert prompt.total["backbone"] == prompt.held == 11_135_332_352
    assert full.learned["backbone"] == 11_135_332_352 - 32128 * 4096, "its output is not read"
    assert full.tunes and not prompt.tunes


def test_counts_of_cpm_2():
    found = Sizes(on_meta("backbone=cpm2", "task=lcqmc", "method=ppt"))
    assert found.learned["total"] == 409_600
    assert found.total["backbone"] == 11_087_097_856


def test_model_parallelism_divides_the_layers_matrices_and_an_output_of_its_own(xxl):
    prompt, _ = xxl
    a_layer = 4 * 4096 * 4096 + 3 * 4096 * 10240
    layers = 24 * a_layer + 24 * (a_layer + 4 * 4096 * 4096)
    assert prompt.divided == layers + 32128 * 4096


def test_a_frozen_backbone_is_held_once_and_a_prompt_costs_next_to_nothing(xxl):
    prompt, _ = xxl
    found = Memory(prompt, GPU, ONE)
    beside = 4 * prompt.learned["total"]
    assert found.weights == 2 * 11_135_332_352 + beside
    assert (found.gradients, found.optimizer, found.best) == (beside, 2 * beside, beside)
    ranks = replace(GPU, model_parallel=4, ranks=4)
    divided = Memory(prompt, ranks, ONE)
    whole = prompt.held - prompt.divided
    assert divided.weights == 2 * (whole + prompt.divided / 4) + beside
    assert divided.optimizer == 3 * beside, "a master copy too; one data-parallel rank"


def test_full_tuning_in_plain_torch_is_fp32(xxl):
    _, full = xxl
    found = Memory(full, GPU, ONE)
    learned = full.learned["total"]
    assert found.gradients == 4 * learned and found.optimizer == 8 * learned
    assert found.activations == 4 * learned, "torch updates all at once on CUDA"
    assert found.standing / GIB > 200


def test_zero_divides_master_and_moments_over_data_parallel_ranks(xxl):
    _, full = xxl
    one = replace(GPU, model_parallel=4, ranks=4)
    two = replace(one, ranks=8)
    assert (one.data_parallel, two.data_parallel) == (1, 2)
    alone, shared = (Memory(full, layout, ONE) for layout in (one, two))
    learned = full.learned["total"] - full.learned_divided * 3 / 4
    assert alone.optimizer == 12 * learned and shared.optimizer == 6 * learned
    assert alone.gradients == shared.gradients == 4 * learned  # added up in fp32
    assert alone.weights == shared.weights


def test_the_peak_is_the_sum_and_gradients_stand_where_a_step_has_more_passes(xxl):
    _, full = xxl
    one, more = (Memory(full, GPU, Work(8, passes, 64)) for passes in (1, 2))
    assert one.peak == one.standing + one.activations + one.spare
    freed = activations(full, GPU, Work(8, 2, 64)).peak
    assert more.activations == max(freed, 4 * full.learned["total"]) >= one.activations


def test_the_token_budget_bounds_the_rows_of_a_pass():
    assert work(GPU, 32, 256) == Work(32, 1, 256)
    assert work(replace(GPU, token_budget=2048), 32, 256) == Work(8, 4, 256)
    assert work(replace(GPU, token_budget=100), 32, 256) == Work(1, 32, 256)
    assert work(replace(GPU, ranks=8, model_parallel=4), 32, 256) == Work(16, 1, 256)


def test_files_and_members_are_of_what_is_learned(xxl):
    prompt, _ = xxl
    learned = prompt.learned["total"]
    assert prompt.files == {
        "prompt.safetensors": 4 * learned,
        "state.safetensors": 16 * learned,
    }
    assert prompt.member == 20 * learned


def test_a_layout_is_read_from_its_configuration():
    four = ["hardware=zero1_mp4", "hardware.model_parallel=4"]
    own = layout_of(compose_run([*four, "backbone=t5_xxl_lm_adapt"]), elsewhere=True)
    assert (own.device, own.precision, own.ranks, own.divides) == ("cuda", "bf16", 4, True)
    assert layout_of(compose_run([*four, "hardware.ranks=8"]), elsewhere=True).data_parallel == 2
    assert layout_of(compose_run([*four, "hardware.precision=fp32"]), elsewhere=True).width == 4
    own = layout_of(compose_run(["hardware=gpu"]))
    assert (own.device, own.precision, own.ranks, own.divides) == ("cuda", "fp32", 1, False)


def test_heads_that_cannot_be_divided_are_refused(xxl):
    prompt, _ = xxl
    with pytest.raises(UserError, match=r"model_parallel is 3.*number of heads is 64"):
        Memory(prompt, replace(GPU, model_parallel=3), ONE)


def autograd_keeps(method, rows, length):
    """Return the bytes that autograd keeps of real tensors, parameters aside."""
    backbone = method.backbone
    for parameter in method.learned().values():
        parameter.requires_grad_(True)
    row = TokenRow([0] * length, None, [0], [], [0] * 3 if method.readout.reads_decoder else None)
    if not backbone.architecture.has_decoder:
        row = TokenRow([0] * length, None, [0])
    batch = collate([Features("", [row], [0])] * rows, torch.arange(rows), torch.device("cpu"))
    weights = [*backbone.model.parameters(), *backbone.model.buffers(), *method.parameters()]
    stored = {t.untyped_storage().data_ptr() for t in weights}
    bytes_of = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in stored:
            bytes_of[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        output = backbone.forward(method.inputs(batch))
    del output
    return sum(bytes_of.values())


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5", "albert"])
@pytest.mark.parametrize("make", [PromptTuning, PTuningV2, FineTuning])
def test_a_step_keeps_about_what_autograd_keeps(tiny, data_dir, kind, make):
    more = {} if make is FineTuning else {"length": 8}
    method = make(tiny(kind), sst2(data_dir), **more)
    cpu = replace(GPU, device="cpu", precision="fp32")
    kept = activations(Sizes(method), cpu, Work(16, 1, 40)).saved
    assert kept == pytest.approx(autograd_keeps(method, 16, 40), rel=0.2)


def test_recomputing_keeps_less_and_half_precision_holds_less(xxl):
    step = Work(8, 1, 256)
    for size in xxl:
        plain = activations(size, GPU, step)
        again = activations(size, replace(GPU, checkpointing=True), step)
        assert again.saved < plain.saved and again.peak < plain.peak
    prompt, _ = xxl
    whole = activations(prompt, replace(GPU, precision="fp32"), step)
    assert activations(prompt, GPU, step).saved < 0.75 * whole.saved
    cut = activations(prompt, replace(GPU, model_parallel=4), step)
    assert cut.saved < 0.5 * activations(prompt, GPU, step).saved
    assert activations(prompt, GPU, Work(16, 1, 256)).saved > 1.9 * cut.saved


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
    layout = HardwareLayout("cpu", "fp32", rows * (length + answer), checkpointing=False)
    logits = rows * 2 * backbone.config["vocab_size"] * 4
    run = Sizes(on_meta(f"backbone={name}", "task=pocket_writing", "method=prompt_tuning"))
    counted = Memory(run, layout, Work(rows, 1, length), answer).writing - logits
    read = length + answer - 1 + decodes  # the last token is not read; a decoder reads its start
    assert found == counted * read / (length + answer)


@pytest.mark.parametrize(("kind", "least", "most"), [("int8", 10.5, 11), ("nf4", 6, 6.3)])
def test_quantized_weights_of_t5_xxl(xxl, kind, least, most):
    held = Memory(xxl[0], replace(GPU, quantization=kind), ONE).weights / GIB
    assert least < held < most
    assert Memory(xxl[0], GPU, ONE).weights / GIB == pytest.approx(20.7, abs=0.1)


def test_quantized_weights_are_those_of_the_tensors(tiny_folder):
    for kind in ("bert", "albert", "gpt2", "t5"):
        typed = [f"backbone.path={tiny_folder(kind)}", "method=prompt_tuning", "method.length=3"]
        counts = Sizes(on_meta(*typed, "task=pocket_sentiment"))
        backbone = build.build("backbone", compose_run(typed).config["backbone"])
        backbone.quantize("int8")
        backbone.load()
        named = [*backbone.model.named_parameters(), *backbone.model.named_buffers()]
        tensors = {id(t): t for n, t in named if not (t.is_meta or n.endswith((".scales", "_ids")))}
        held = sum(t.numel() * t.element_size() for t in tensors.values())
        cpu = replace(GPU, device="cpu", precision="fp32", quantization="int8")
        weights = Memory(counts, cpu, ONE).weights
        own = 4 * (counts.learned["prompt"] + counts.learned["head"] + counts.frozen_beside)
        assert weights - own == pytest.approx(held, rel=0.01), kind
