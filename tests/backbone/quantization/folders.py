"""Tiny model folders whose weights are quantized in each way that ptrun reads."""

import json
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
)

from tests.conftest import SPECIAL, wordpiece_tokenizer, write_tokenizer

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 200}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
MODELS = {
    "llama": LlamaConfig(**SIZES),
    "odd": LlamaConfig(**SIZES | {"intermediate_size": 96}),
    "gpt2": GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=128, vocab_size=200),
    "gpt_oss": GptOssConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, head_dim=16),
}


def write_plain(kind, folder):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(MODELS[kind]).to(torch.bfloat16)
    model.save_pretrained(folder)
    write_tokenizer(folder, wordpiece_tokenizer(), SPECIAL)


def write_bitsandbytes(plain, folder, settings):
    model = AutoModelForCausalLM.from_pretrained(
        plain,
        quantization_config=BitsAndBytesConfig(**settings),
        dtype=torch.bfloat16,
        device_map={"": "cpu"},
    )
    shutil.copytree(plain, folder)
    model.save_pretrained(folder)


def fp8(name, matrix, block=None, ending="_scale_inv", dtype=torch.float32):
    """Return codes and scales `[N / r, K / c]` of blocks `[r, c]`; None is the whole matrix."""
    rows, columns = matrix.shape
    r, c = block or (rows, columns)
    grid = torch.rand(-(-rows // r), -(-columns // c)) * 0.01 + 0.001
    grid = grid.log2().ceil().exp2().to(dtype) if dtype.itemsize == 1 else grid.to(dtype)
    spread = grid.float().repeat_interleave(r, 0)[:rows].repeat_interleave(c, 1)[:, :columns]
    codes = (matrix.float() / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    return {name: codes, name + ending: grid if block else grid.view(())}


def by_row(name, matrix, levels=448, dtype=torch.float32, zero=False):
    scale = (matrix.float().abs().amax(1, keepdim=True) / levels).to(dtype)
    codes = (matrix.float() / scale.float()).clamp(-levels, levels)
    codes = codes.to(torch.float8_e4m3fn) if levels == 448 else codes.round().to(torch.int8)
    zeros = {f"{name}_zero_point": torch.randint(-5, 5, scale.shape).to(torch.int8)}
    return {name: codes, f"{name}_scale": scale, **(zeros if zero else {})}


def static(name, matrix):
    """Return a whole matrix's codes, as AutoFP8 writes them, with the scale of activations."""
    other = name.replace("weight", "input_scale")
    return {**fp8(name, matrix, ending="_scale"), other: torch.tensor(2.0)}


def mxfp4(name, matrix):
    experts, inputs, outputs = matrix.shape
    shape = (experts, outputs, inputs // 32)
    scales = torch.randint(100, 122, shape, dtype=torch.uint8)
    scales.view(-1)[:2] = torch.tensor([0, 1])
    blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
    return {f"{name}_blocks": blocks, f"{name}_scales": scales}


def rewrite(folder, change=lambda tensors: None, settings=None):
    """Change the tensors of a folder in place, and its quantization_config."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    more = {} if settings is None else {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config | more))


def write_coded(plain, folder, code, settings):
    """Write a folder where `code` has made codes and scales of each matrix of the layers."""
    shutil.copytree(plain, folder)
    experts = code is mxfp4

    def change(tensors):
        torch.manual_seed(1)
        for name in list(tensors):
            matrix = tensors[name]
            if matrix.ndim == 2 + experts and ".layers." in name:
                del tensors[name]
                tensors |= code(name, matrix)

    rewrite(folder, change, settings)
