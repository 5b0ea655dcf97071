"""A tiny Llama or Qwen and its GGUF file, written as llama.cpp's converter writes it."""

import json

import gguf
import numpy
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

TEXTS = ["The film was good.", "The film was bad, and 12 people left."] * 20
HEADS, GROUPS = 4, 2


ARCHS = {
    "llama": (LlamaConfig, gguf.MODEL_ARCH.LLAMA),
    "qwen2": (Qwen2Config, gguf.MODEL_ARCH.QWEN2),
    "qwen3": (Qwen3Config, gguf.MODEL_ARCH.QWEN3),
}


def model(kind="llama"):
    """Return a model with random weights, two query heads a key head."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    if kind == "qwen3":
        sizes["head_dim"] = 128  # all that transformers reads
    config = ARCHS[kind][0](
        vocab_size=320, num_attention_heads=HEADS, num_key_value_heads=GROUPS,
        max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=True, **sizes,
    )  # fmt: skip
    made = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, tensor in made.named_parameters():
            if name.endswith((".bias", "_norm.weight")):  # they start as zeros and ones
                tensor.add_(0.1 * torch.randn(tensor.shape))
    return made


def byte_pairs():
    """Return a byte-level BPE of 320 entries, the first two special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<unk>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def write(
    file, held, *, quantized=None, arch=None, more=None, without=(), extra=(), split="gpt-2"
):  # fmt: skip
    """Write a GGUF file.

    `more` are further fields and `without` tensors to leave out, `extra` tensors of zeros to add;
    `split` is the rule that splits text.
    """
    config = held.config
    writer = gguf.GGUFWriter(file, arch or config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    size = getattr(config, "head_dim", None) or config.hidden_size // HEADS
    writer.add_rope_dimension_count(size)
    writer.add_key_length(size)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    for key, value in (more or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        add.get(type(value), writer.add_float32)(key, value)
    if "tokenizer" not in without:
        _tokenizer(writer, config.vocab_size, split)
    names = gguf.get_tensor_name_map(ARCHS[config.model_type][1], config.num_hidden_layers)
    for name, tensor in held.state_dict().items():
        ours = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if name != "lm_head.weight" and ours not in without:
            paired = _paired(name, tensor) if config.model_type == "llama" else tensor
            _add(writer, ours, paired.numpy(), quantized)
    for name in extra:
        writer.add_tensor(name, numpy.zeros(4, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _tokenizer(writer, rows, split):
    held = byte_pairs()
    entries = sorted(held.get_vocab(), key=held.token_to_id)
    entries += [f"<unused{i}>" for i in range(rows - len(entries))]
    merges = [" ".join(pair) for pair in json.loads(held.to_str())["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(entries)
    writer.add_token_types(
        [3 if entry.startswith("<") and len(entry) > 1 else 1 for entry in entries]
    )
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(0)


def _paired(name, tensor):
    """Return queries and keys with the halves of each head interleaved, as llama.cpp has them."""
    heads = HEADS if "q_proj" in name else GROUPS if "k_proj" in name else None
    if heads is None:
        return tensor
    return tensor.reshape(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)


def _add(writer, name, array, quantized):
    array = numpy.ascontiguousarray(array, dtype=numpy.float32)
    if quantized is None or array.ndim == 1:
        writer.add_tensor(name, array)
        return
    packed = gguf.quants.quantize(array, quantized)
    writer.add_tensor(name, packed, raw_dtype=quantized)
