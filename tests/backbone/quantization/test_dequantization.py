"""Weights that are quantized in their files become the plain numbers that transformers makes."""

import json
import logging
import shutil
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, Mxfp4Config
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

from ptrun.backbone.files import read_config
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.weights import stored
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.exporting.export import export
from ptrun.importing.hf import import_hf
from ptrun.planning.doctor import backbone_checks
from ptrun.predicting.answering import ready
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from tests.backbone.quantization import folders
from tests.backbone.quantization.folders import by_row, fp8, mxfp4, rewrite, static
from tests.tiers import package

package("bitsandbytes")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:bitsandbytes.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
BITSANDBYTES = {
    "nf4": NF4,
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "nested": {**NF4, "bnb_4bit_use_double_quant": True, "bnb_4bit_quant_storage": "bfloat16"},
    "int8": {"load_in_8bit": True},
    "odd_nf4": NF4,
    "gpt2_nf4": NF4,
    "gpt2_int8": {"load_in_8bit": True},
}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
FBGEMM = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
COMPRESSED = {"quant_method": "compressed-tensors", "format": "float-quantized"}
INT8 = {"quant_method": "compressed-tensors", "format": "int-quantized"}
BF16 = torch.bfloat16
BLOCK = FP8 | {"weight_block_size": [32, 32]}


def grouped(settings, strategy, **more):
    return settings | {"config_groups": {"group_0": {"weights": {"strategy": strategy, **more}}}}


CODED = {
    "block": (partial(fp8, block=(32, 32)), BLOCK),
    "e8m0": (partial(fp8, block=(32, 32), dtype=torch.float8_e8m0fnu), BLOCK),
    "tensor": (fp8, FP8 | {"weight_block_size": None}),
    "static": (static, FP8 | {"activation_scheme": "static"}),
    "fbgemm": (by_row, FBGEMM),
    "row": (partial(by_row, dtype=BF16), grouped(COMPRESSED, "channel")),
    "matrix": (partial(fp8, ending="_scale", dtype=BF16), grouped(COMPRESSED, "tensor")),
    "blocks": (
        partial(fp8, block=(32, 32), ending="_scale"),
        grouped(COMPRESSED, "block", block_structure=[32, 32]),
    ),
    "int8_row": (partial(by_row, levels=127, dtype=BF16), INT8),
    "zeros": (partial(by_row, levels=127, zero=True), INT8),
    "mxfp4": (mxfp4, {"quant_method": "mxfp4"}),
}
UP = "model.layers.0.mlp.up_proj.weight"
CPU = {"device_map": {"": "cpu"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a function that writes the folder of a kind once."""
    root = tmp_path_factory.mktemp("quantized")

    def write(kind):
        folder = root / kind
        if folder.exists():
            return folder
        if kind.startswith("plain_"):
            folders.write_plain(kind.removeprefix("plain_"), folder)
        elif kind in BITSANDBYTES:
            model = kind.rpartition("_")[0] or "llama"
            plain = write(f"plain_{model}")
            folders.write_bitsandbytes(plain, folder, BITSANDBYTES[kind])
        else:
            plain = write("plain_gpt_oss" if kind == "mxfp4" else "plain_llama")
            folders.write_coded(plain, folder, *CODED[kind])
        return folder

    return write


@pytest.fixture
def copied(made, tmp_path):
    return lambda kind: shutil.copytree(made(kind), tmp_path / kind)


def own(folder, dtype):
    backbone = PretrainedBackbone(name="x", path=str(folder))
    backbone.read_weights(dtype)
    return dict(backbone.model.named_parameters())


def library(kind, folder, dtype):
    """Return the parameters that transformers gives; some kinds have no way there on a CPU."""
    load = partial(AutoModelForCausalLM.from_pretrained, folder, dtype=dtype)
    if kind in BITSANDBYTES:
        return dict(load(**CPU).dequantize().named_parameters())
    if kind == "mxfp4":
        config = Mxfp4Config(dequantize=True)
        return dict(load(quantization_config=config).named_parameters())
    if kind in ("block", "e8m0", "tensor"):
        config = FineGrainedFP8Config(dequantize=True)
        return dict(load(quantization_config=config).named_parameters())
    tensors = load_file(folder / "model.safetensors")
    return {
        n: closed(n, tensors).to(dtype) for n in tensors if "scale" not in n and "zero" not in n
    }


def closed(name, tensors):
    """Return codes minus zero times scale; compressed-tensors does it in the scale's dtype."""
    if f"{name}_scale" not in tensors:
        return tensors[name]
    scale = tensors[f"{name}_scale"]
    if scale.ndim == 2 and scale.shape[1] > 1:
        rows, columns = tensors[name].shape
        scale = scale.repeat_interleave(32, 0)[:rows].repeat_interleave(32, 1)[:, :columns]
    codes, zero = tensors[name].to(scale.dtype), tensors.get(f"{name}_zero_point")
    return (codes if zero is None else codes - zero.to(scale.dtype)) * scale


@pytest.mark.parametrize("kind", [k for k in [*BITSANDBYTES, *CODED] if k != "odd_nf4"])
def test_numbers_are_those_of_the_library_bit_for_bit(made, kind):
    folder = made(kind)
    for dtype in (torch.bfloat16, torch.float32):
        numbers, reference = own(folder, dtype), library(kind, folder, dtype)
        coded = 0
        for name, tensor in numbers.items():
            wanted = reference[name]
            turned = "gpt2" in kind and name.endswith(("attn.weight", "proj.weight", "fc.weight"))
            assert torch.equal(tensor, wanted.T if turned else wanted), name
            coded += ".layers.0." in name or ".h.0." in name
        assert coded


def test_the_last_block_of_a_matrix_may_be_cut(made, tmp_path):
    """The library's `Fp8Dequantize` (5.23) refuses it, or takes smaller blocks than config.json."""
    settings = FP8 | {"weight_block_size": [48, 48]}
    folders.write_coded(
        made("plain_llama"), tmp_path / "cut", partial(fp8, block=(48, 48)), settings
    )
    tensors, numbers = load_file(tmp_path / "cut/model.safetensors"), own(tmp_path / "cut", BF16)
    codes, scale = tensors[UP].float(), tensors[f"{UP}_scale_inv"]
    wanted = _dequantize_fp8_weight(codes, scale, [48, 48], torch.float32)
    assert scale.shape == (3, 2) and torch.equal(numbers[UP], wanted.to(BF16))


def test_rows_of_bitsandbytes_may_end_within_a_block(made):
    """On CPUs with AVX-512 its kernel (0.50) is wrong then, but not for one long row."""
    folder = made("odd_nf4")
    from bitsandbytes import functional

    tensors = load_file(folder / "model.safetensors")
    name = UP.replace("up", "down")
    state = functional.QuantState(
        tensors[f"{name}.absmax"],
        shape=(1, 64 * 96),
        code=tensors[f"{name}.quant_map"],
        blocksize=64,
        quant_type="nf4",
        dtype=BF16,
    )
    wanted = functional.dequantize_4bit(tensors[name], state).view(64, 96)
    assert torch.equal(own(folder, BF16)[name], wanted)


@pytest.mark.parametrize("kind", ["nested", "static", "mxfp4"])
def test_an_imported_folder_is_plain_and_has_the_same_numbers(made, kind, tmp_path):
    done = import_hf(made(kind), tmp_path / "out", dtype="bf16")
    assert "dequantized from" in done.line()
    assert "quantization_config" not in read_config(tmp_path / "out")
    assert {t.dtype for t in load_file(tmp_path / "out/model.safetensors").values()} == {BF16}
    before, after = own(made(kind), BF16), own(tmp_path / "out", BF16)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.slow
def test_a_quantized_folder_trains_and_says_so(made, tmp_path, caplog):
    line = [f"backbone.path={made('block')}", "task=pocket_sentiment", "method=lora"]
    line += ["train.max_steps=2", "train.eval_every=2", f"outputs={tmp_path}"]
    with caplog.at_level(logging.INFO, logger="ptrun"):
        done = launch(compose_run(line))
    assert "block: dequantized from fp8: 14 tensors" in caplog.text
    assert done.manifest["backbone"]["dequantized_from"] == "fp8"
    (weights,) = [c for c in backbone_checks(line[:1]) if c.name == "weights"]
    assert weights.says == "dequantized from fp8: 14 tensors"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["block", "gpt2_int8"])
def test_an_export_names_the_plain_weights_that_its_adapter_needs(made, kind, tmp_path):
    package("peft")
    line = [f"backbone.path={made(kind)}", "task=pocket_sentiment", "method=lora"]
    line += ["train.max_steps=2", "train.eval_every=2", f"outputs={tmp_path}"]
    done = launch(compose_run(line))
    finished = ready(str(tmp_path / "runs" / done.run_id), ["hardware.precision=fp32"])
    said, gap = export(finished, [], tmp_path / "out")
    assert gap.equal and f"ptrun import hf {made(kind)} --out DIR" in said
    assert f"ptrun import hf {made(kind)} --out DIR" in (tmp_path / "out/README.md").read_text()


def test_quantization_on_top_rounds_twice(made, caplog):
    backbone = PretrainedBackbone(name="x", path=str(made("block")))
    backbone.quantize("int8")
    with caplog.at_level(logging.INFO, logger="ptrun"):
        backbone.read_weights()
    assert "then rounded again by hardware.quantization=int8" in caplog.text
    name = "model.layers.0.mlp.up_proj"
    dense = own(made("block"), torch.float32)[f"{name}.weight"]
    matrix = backbone.model.get_submodule(name).matrix()
    assert 0 < (matrix - dense).abs().max() <= dense.abs().amax(1).max() / 127


EXPERTS = "model.layers.0.mlp.experts.down_proj"


def without(name):
    return lambda tensors: tensors.pop(name)


def cut(name):
    return lambda tensors: tensors.update({name: tensors[name][:1]})


def renamed(name, new):
    return lambda tensors: tensors.update({new: tensors.pop(name)})


def other_dtype(name):
    return lambda tensors: tensors.update({name: tensors[name].to(torch.int32)})


WRONG = {
    "no absmax": ("nf4", without(f"{UP}.absmax"), rf"{UP}.absmax is missing"),
    "no state": ("nf4", without(f"{UP}.quant_state.bitsandbytes__nf4"), r"quant_state.* missing"),
    "other codes": ("nf4", cut(UP), rf"{UP} is torch.uint8 \[1, 1\], expected \[4096\]"),
    "cut absmax": ("nf4", cut(f"{UP}.absmax"), rf"{UP}.absmax is .*\[1\], expected \[128\]"),
    "no nested": ("nested", without(f"{UP}.nested_absmax"), rf"{UP}.nested_absmax is missing"),
    "no SCB": ("int8", without(f"{UP[:-6]}SCB"), r"up_proj.SCB is missing"),
    "cut SCB": ("int8", cut(f"{UP[:-6]}SCB"), r"SCB is .*\[1\], expected \[128\]"),
    "no scale": ("block", without(f"{UP}_scale_inv"), rf"{UP}_scale is missing"),
    "cut scale": (
        "block",
        cut(f"{UP}_scale_inv"),
        rf"{UP}_scale_inv is .*\[1, 2\], expected \[4, 2\]",
    ),
    "int scale": (
        "block",
        other_dtype(f"{UP}_scale_inv"),
        rf"{UP}_scale_inv is torch.int32, expected",
    ),
    "no codes": ("block", without(UP), rf"{UP}_scale_inv is a scale, and its codes are missing"),
    "row": ("row", cut(f"{UP}_scale"), rf"{UP}_scale is .*\[1, 1\]"),
    "no scales": ("mxfp4", without(f"{EXPERTS}_scales"), rf"{EXPERTS}_scales is missing"),
    "no blocks": ("mxfp4", without(f"{EXPERTS}_blocks"), rf"{EXPERTS}_scales is a scale, and its"),
    "cut scales": (
        "mxfp4",
        cut(f"{EXPERTS}_scales"),
        rf"{EXPERTS}_scales is .*\[1, 64, 4\], expected",
    ),
    "packed": (
        "row",
        renamed(UP, f"{UP}_packed"),
        rf"{UP}_packed is of a format .*\nUse the model",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_by_the_name_of_the_tensor(copied, name):
    kind, change, message = WRONG[name]
    folder = copied(kind)
    rewrite(folder, change)
    with pytest.raises(UserError, match=message) as caught:
        stored(folder)
    assert str(caught.value).count("\n") == 1


@pytest.mark.parametrize(("kind", "dtype"), [("block", "float8_e4m3fn"), ("int8", "int8")])
def test_codes_without_their_method_are_refused(copied, kind, dtype):
    folder = copied(kind)
    rewrite(folder, settings={})
    with pytest.raises(UserError, match=rf"torch.{dtype}, and config.json has no quantization_"):
        stored(folder)


TWINS = {
    "Model-GPTQ-Int4": ({}, "", "Use Model, of .*from the name of the folder"),
    "Model-bnb-4bit": ({}, "", "Use Model, of .*from the name of the folder"),
    "Model-AWQ": ({"_name_or_path": "org/Model"}, "", r"Use org/Model, .*_name_or_path in config"),
    "x-fp8": (
        {},
        "---\nbase_model:\n- org/True\n---\n",
        "Use org/True, .*base_model in README.md",
    ),
    "models--org--M-AWQ/snapshots/abc": ({}, "", "Use org/M, .*from its hub id"),
    "folder": ({}, "", ".*no file here names it"),
}


@pytest.mark.parametrize("name", TWINS)
def test_a_method_that_is_not_read_names_the_plain_model(tmp_path, name):
    more, card, message = TWINS[name]
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(card)
    config = {"model_type": "llama", "quantization_config": {"quant_method": "gptq"}}
    (folder / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(UserError, match=rf"quantized by gptq, which .*\n{message}"):
        read_config(folder)


def test_a_folder_without_weights_says_what_is_missing(copied):
    folder = copied("block")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no weights there; expected model\.safetensors"):
        plan(compose_run([f"backbone.path={folder}", "task=pocket_sentiment"]))
