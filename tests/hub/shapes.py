"""Repositories with tiny weights in each form that published ones have.

The forms, the names of files and the quirks of tensors are those seen at the real repositories:
pickles of both formats of torch, other formats beside them, tokenizers with and without a
tokenizer.json.
"""

import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from safetensors.torch import save as save_safetensors
from tokenizers import models
from torch import Tensor

from ptrun.backbone.registry import family_of
from ptrun.pocket.corpus import documents
from tests.conftest import DISENTANGLED, ROBERTA, byte_tokenizer, wordpiece_tokenizer

PICKLE, TENSORS = "pytorch_model.bin", "model.safetensors"
Files = dict[str, bytes]
State = dict[str, Tensor]
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 2}
T5 |= {"num_heads": 2, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
T5 |= {"tie_word_embeddings": False, "pad_token_id": 0, "eos_token_id": 1}
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT |= {"intermediate_size": 24, "max_position_embeddings": 64}
LLAMA = {**BERT, "num_key_value_heads": 1, "tie_word_embeddings": True}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
DEBERTA = {**BERT, **DISENTANGLED, "max_relative_positions": -1, "position_biased_input": False}
NOISE: Files = {  # files beside the weights that nobody asks for
    "tf_model.h5": b"tensorflow" * 99,
    "flax_model.msgpack": b"flax" * 99,
    "training_args.bin": b"\x80\x02cos\nmkdir\n.",
    "README.md": b"---\nlicense: apache-2.0\n---\n",
    ".gitattributes": b"*.bin filter=lfs\n",
}


def pickled(state: State, *, zipped: bool = True) -> bytes:
    """Return a file of torch, in its format before 1.6 if not `zipped`."""
    written = io.BytesIO()
    torch.save(state, written, _use_new_zipfile_serialization=zipped)
    return written.getvalue()


def tensors(state: State) -> bytes:
    """Return a safetensors file."""
    return save_safetensors(
        {name: one.contiguous() for name, one in state.items()}, {"format": "pt"}
    )


def tiny(model_type: str, **sizes: Any) -> tuple[Files, State]:
    """Return config.json and a random state of a model of a family."""
    content = {"model_type": model_type, **sizes}
    family = family_of(model_type, content)
    config = family.library_config(content)
    torch.manual_seed(5)
    model = family.model_class(config)
    for name, parameter in model.named_parameters():
        norm = parameter.dim() == 1 and name.endswith("weight")
        parameter.data.normal_(mean=1.0 if norm else 0.0, std=0.1)
    state = {name: one.detach().clone() for name, one in model.state_dict().items()}
    return {"config.json": json.dumps(content).encode()}, state


@cache
def spiece(kind: str = "t5") -> bytes:
    """Return a sentencepiece model; mT5's has the sentinels as pieces of its own."""
    lines = [" ".join(document) for document in islice(documents(), 80)]
    lines += ["这个矛盾很大", "这是矛盾的", "它们蕴含着", "中立的"] * 9
    own = [f"▁<extra_id_{i}>" for i in range(99, -1, -1)] if kind == "mt5" else []
    special = ["[CLS]", "[SEP]", "[MASK]"] if kind == "albert" else []
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, vocab_size=320 + len(own),
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, pad_piece="<pad>", eos_piece="</s>",
        unk_piece="<unk>", user_defined_symbols=[*special, *own], minloglevel=9,
        hard_vocab_limit=False, character_coverage=1.0,
    )  # fmt: skip
    return written.getvalue()


def pieces(kind: str = "t5") -> int:
    """Return the number of pieces of a sentencepiece model."""
    return int(sentencepiece.SentencePieceProcessor(model_proto=spiece(kind)).vocab_size())


@cache
def spiece_json(kind: str = "t5") -> bytes:
    """Return the tokenizer.json that the library makes of a sentencepiece model."""
    from transformers import AlbertTokenizer, T5Tokenizer

    made = AlbertTokenizer if kind == "albert" else T5Tokenizer
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spiece.model").write_bytes(spiece(kind))
        made.from_pretrained(folder).save_pretrained(folder)
        return Path(folder, "tokenizer.json").read_bytes()


def words(*, bare: bool = False) -> Files:
    """Return BERT's tokenizer: vocab.txt, and a tokenizer.json unless `bare`."""
    made = wordpiece_tokenizer()
    listed = sorted(made.get_vocab(), key=made.get_vocab().__getitem__)
    settings = {"do_lower_case": False, "model_max_length": 512}
    files = {"vocab.txt": "\n".join(listed).encode(), "tokenizer_config.json": dump(settings)}
    return files if bare else files | {"tokenizer.json": made.to_str().encode()}


def byte_pairs(special: list[str], *, bare: bool = False) -> Files:
    """Return GPT-2's kind of tokenizer: vocab.json and merges.txt."""
    letters = [one for one in byte_tokenizer().get_vocab() if len(one) == 1]
    ids = {word: index for index, word in enumerate([*special, *sorted(letters)])}
    files = {"vocab.json": dump(ids), "merges.txt": b"#version: 0.2\n"}
    if bare:
        return files
    made = byte_tokenizer()
    made.model = models.BPE(ids, [])
    return files | {"tokenizer.json": made.to_str().encode()}


def dump(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def t5(*, with_json: bool, kind: str = "t5", shards: int = 1) -> Files:
    """T5 v1.1, LM-adapted and mT5: one pickle with three copies of the embeddings."""
    own = kind if kind == "mt5" else "t5"
    rows = pieces(own) + (0 if own == "mt5" else 100)
    files, state = tiny(kind, vocab_size=rows, **T5)
    state["lm_head.weight"] = torch.randn(rows, T5["d_model"]) * 0.1
    embeddings = state["shared.weight"]
    copies = {f"{one}.embed_tokens.weight": embeddings for one in ("encoder", "decoder")}
    state = {"shared.weight": embeddings, **state, **copies}
    settings: dict[str, Any] = {"tokenizer_class": "T5Tokenizer", "model_max_length": 512}
    if own == "mt5":
        settings |= {"extra_ids": 0, "additional_special_tokens": None}
    else:
        settings |= {"extra_ids": 100}
        settings |= {"additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)]}
    files |= {"spiece.model": spiece(own), "tokenizer_config.json": dump(settings), **NOISE}
    if with_json:
        files["tokenizer.json"] = spiece_json()
    return files | (sharded(state, shards) if shards > 1 else {PICKLE: pickled(state)})


def sharded(state: State, count: int) -> Files:
    """Return shards and their index."""
    names = list(state)
    files, places = {}, {}
    for i in range(count):
        name = f"pytorch_model-{i + 1:05d}-of-{count:05d}.bin"
        own = names[i * len(names) // count : (i + 1) * len(names) // count]
        files[name] = pickled({one: state[one].clone() for one in own})
        places |= dict.fromkeys(own, name)
    return files | {f"{PICKLE}.index.json": dump({"metadata": {}, "weight_map": places})}


def electra() -> Files:
    """ELECTRA of March 2020: torch's format before 1.6, with position_ids."""
    files, state = tiny("electra", vocab_size=105, embedding_size=8, **BERT)
    state["electra.embeddings.position_ids"] = torch.arange(64)[None]
    return files | words() | NOISE | {PICKLE: pickled(state, zipped=False)}


def deberta() -> Files:
    """DeBERTa-xlarge: half precision, its own head, no tokenizer.json, a vocabulary as a .bin."""
    special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
    files = byte_pairs(special, bare=True)
    ids = json.loads(files["vocab.json"])
    files["vocab.json"] = dump(ids | {"[MASK]": len(ids)})
    config, state = tiny("deberta", vocab_size=len(ids) + 1, legacy=False, **DEBERTA)
    content = json.loads(config["config.json"])
    content.pop("legacy")  # the published file lacks it
    state["deberta.embeddings.position_embeddings.weight"] = torch.randn(64, 16)
    half = {name: one.half() for name, one in state.items()}
    noise = NOISE | {"bpe_encoder.bin": b"\x80\x02cos\nmkdir\n."}
    return {"config.json": dump(content), PICKLE: pickled(half)} | files | noise


def albert() -> Files:
    """ALBERT: safetensors beside a pickle, copies of its decoder, a sentence-order head."""
    files, state = tiny("albert", vocab_size=pieces("albert"), embedding_size=8, **BERT)
    state["sop_classifier.classifier.weight"] = torch.randn(2, 16)
    files |= {"spiece.model": spiece("albert"), "tokenizer.json": spiece_json("albert")}
    files["tokenizer_config.json"] = dump({"model_max_length": 512})  # names no class
    return files | NOISE | {TENSORS: tensors(state), PICKLE: pickled(state)}


def bert() -> Files:
    """BERT: old names of LayerNorm, a next-sentence head."""
    files, state = tiny("bert", vocab_size=105, **BERT)
    old = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
    for new, name in old.items():
        state = {own.replace(new, name): one for own, one in state.items()}
    state["cls.seq_relationship.weight"] = torch.randn(2, 16)
    return files | words() | NOISE | {TENSORS: tensors(state), PICKLE: pickled(state)}


def minilm() -> Files:
    """A sentence encoder: a body without prefix and head, position_ids, a folder of pooling."""
    files, state = tiny("bert", vocab_size=105, **BERT)
    bare = {name.removeprefix("bert."): one for name, one in state.items() if name[:4] == "bert"}
    bare["embeddings.position_ids"] = torch.arange(64)[None]
    beside = {"1_Pooling/config.json": dump({"pooling_mode_mean_tokens": True})}
    beside |= {"modules.json": b"[]", "onnx/model.onnx": b"onnx"}
    return files | words() | NOISE | beside | {TENSORS: tensors(bare), PICKLE: pickled(bare)}


def roberta(*, mnli: bool = False) -> Files:
    """RoBERTa with its head and int64 position_ids; that of MNLI has a classifier and a pooler."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    files, state = tiny("roberta", vocab_size=261, **BERT, **ROBERTA)
    state["roberta.embeddings.position_ids"] = torch.arange(64)[None]
    if mnli:
        state = {name: one for name, one in state.items() if not name.startswith("lm_head.")}
        state |= {f"{at}.dense.weight": torch.randn(16, 16) for at in MNLI}
        state |= {f"{at}.dense.bias": torch.randn(16) for at in MNLI}
        state |= {"classifier.out_proj.weight": torch.randn(3, 16)}
        state |= {"classifier.out_proj.bias": torch.randn(3)}
        labels = {"0": "CONTRADICTION", "1": "NEUTRAL", "2": "ENTAILMENT"}
        content = json.loads(files["config.json"]) | {"_num_labels": 3, "id2label": labels}
        files = {"config.json": dump(content)}
    own = {TENSORS: tensors(state), PICKLE: pickled(state)}
    return files | byte_pairs(special) | NOISE | own


MNLI = ("classifier", "roberta.pooler")


def gpt2() -> Files:
    """GPT-2: names without prefix, the buffers of its mask."""
    special = ["<|endoftext|>"]
    files, state = tiny("gpt2", vocab_size=257, **GPT2)
    bare = {
        n.removeprefix("transformer."): one for n, one in state.items() if n != "lm_head.weight"
    }
    for layer in range(2):
        bare[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 64, 64).tril().bool()
    return files | byte_pairs(special) | NOISE | {TENSORS: tensors(bare), PICKLE: pickled(bare)}


def smollm() -> Files:
    """SmolLM2: a Llama in bfloat16 whose output matrix is the embeddings."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    files, state = tiny("llama", vocab_size=259, **LLAMA)
    state = {name: one.bfloat16() for name, one in state.items() if name != "lm_head.weight"}
    return files | byte_pairs(special) | NOISE | {TENSORS: tensors(state)}


SHAPES: dict[str, Callable[[], Files]] = {
    "t5_v1_1": lambda: t5(with_json=False),
    "t5_lm_adapt": lambda: t5(with_json=True),
    "mt5": lambda: t5(with_json=False, kind="mt5"),
    "electra": electra,
    "deberta": deberta,
    "albert": albert,
    "bert": bert,
    "minilm": minilm,
    "roberta": roberta,
    "roberta_large_mnli": lambda: roberta(mnli=True),
    "gpt2": gpt2,
    "smollm2": smollm,
}


def shape_of(preset: str) -> str:
    """Return the shape that the repository of a preset has."""
    if "lm_adapt" in preset:
        return "t5_lm_adapt"
    return max((one for one in SHAPES if preset.startswith(one)), key=len)
