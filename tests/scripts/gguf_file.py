"""A tiny Llama and its GGUF file, written as llama.cpp's converter writes it."""

import json

import gguf
import numpy
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

TEXTS = ["The film was good.", "The film was bad, and 12 people left."] * 20
HEADS, GROUPS = 4, 2


def model():
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=HEADS, num_key_value_heads=GROUPS, max_position_embeddings=128,
        rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


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


def write(file, llama):
    config = llama.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    _write_tokenizer(writer, config.vocab_size)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in llama.state_dict().items():
        if name != "lm_head.weight":
            array = numpy.ascontiguousarray(_paired(name, tensor).numpy())
            dtype = gguf.GGMLQuantizationType["F32" if array.ndim == 1 else "Q8_0"]
            packed = gguf.quants.quantize(array, dtype)
            place = names.get_name(name, try_suffixes=(".weight",))
            writer.add_tensor(place, packed, raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_tokenizer(writer, rows):
    tokenizer = byte_pairs()
    entries = sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)
    entries += [f"<unused{i}>" for i in range(rows - len(entries))]
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
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
