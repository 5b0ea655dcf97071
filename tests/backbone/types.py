"""Tiny random models of many types, for a family that is read from a traced pass."""

import torch
import transformers
from transformers import AutoConfig

from tests.conftest import CLASSES, SPECIAL, wordpiece_tokenizer, write_tiny, write_tokenizer
from tests.families import FAMILIES

_SIZES = {
    "hidden_size num_attention_heads num_key_value_heads": (32, 4, 2),
    "num_hidden_layers intermediate_size max_position_embeddings": (2, 48, 64),
    "n_embd n_layer n_head n_positions": (32, 2, 4, 64),
    "d_model encoder_layers decoder_layers": (32, 2, 2),
    "encoder_attention_heads decoder_attention_heads": (4, 4),
    "encoder_ffn_dim decoder_ffn_dim ffn_dim": (48, 48, 48),
    "head_dim dim n_layers n_heads hidden_dim": (8, 32, 2, 4, 48),
    "word_embed_proj_dim embedding_size": (32, 32),
    "moe_intermediate_size num_experts num_local_experts num_experts_per_tok": (16, 4, 4, 2),
    "pad_token_id bos_token_id eos_token_id cls_token_id sep_token_id": (0, 2, 3, 2, 3),
    "mask_token_id decoder_start_token_id": (4, 3),
}
SIZES = {
    key: value
    for keys, values in _SIZES.items()
    for key, value in zip(keys.split(), values, strict=True)
}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


def each(names, own):
    return {name: own for name in names.split()}


_HALF = {"factor": 2.0, "original_max_position_embeddings": 32}
_WINDOW = {"sliding_window": 4}
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8}
_LATENT |= {"v_head_dim": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
_GRANITE = {"logits_scaling": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3}
CAUSAL = {
    **each("gemma phi phi3 olmo olmo2 smollm3 gpt_neox opt", {}),
    **each("stablelm starcoder2 cohere glm glm4 gpt_bigcode", {}),
    **each("biogpt nemotron helium ernie4_5 exaone4 arcee", {}),
    **each("seed_oss hunyuan_v1_dense", {}),
    **each("gemma2 gemma3_text olmo3 cohere2", _WINDOW),
    **each("qwen3_moe mixtral olmoe granitemoe phimoe", {}),
    "granite": _GRANITE,
    "gpt_oss": {**_WINDOW, **rope("default")},
    "deepseek_v3": {**_LATENT, "num_key_value_heads": 4, "first_k_dense_replace": 1},
}
MASKED = {
    **each("xlm-roberta distilbert camembert nomic_bert ernie", {}),
    **each("data2vec-text eurobert roc_bert xlm-roberta-xl", {}),
    "modernbert": {"local_attention": 4},
}
SEQ2SEQ = {
    **each("bart mbart pegasus marian blenderbot plbart", {}),
    **each("blenderbot-small t5gemma m2m_100 nllb-moe", {}),
}
SCALED = {
    "llama-linear": rope("linear", factor=2.0),
    "llama-dynamic": rope("dynamic", **_HALF),
    "llama-yarn": rope("yarn", **_HALF),
    "llama-llama3": rope("llama3", **_HALF, low_freq_factor=1.0, high_freq_factor=4.0),
    "llama-longrope": rope("longrope", **_HALF, short_factor=[1.0] * 4, long_factor=[2.0] * 4),
}
_MIXED = {"num_hidden_layers": 4, "mamba_d_state": 8, "mamba_n_heads": 4, "mamba_d_head": 16}
_LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
_LINEAR |= {"linear_value_head_dim": 8, "num_hidden_layers": 4}
CLOSED = {
    **each("bloom falcon mpt mpnet megatron-bert", {}),
    "gptj": {"rotary_dim": 8},
    "mamba": {"state_size": 8},
    "falcon_h1": {
        **_MIXED,
        "mamba_d_ssm": 64,
        "mamba_n_groups": 1,
        "embedding_multiplier": 5.0,
        "lm_head_multiplier": 0.5,
    },
    "granitemoehybrid": {**_MIXED, "layer_types": ["mamba", "attention"] * 2},
    "jamba": {**_MIXED, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "qwen3_next": _LINEAR,
    "qwen3_5_text": _LINEAR,
}
TRANSLATE = {  # a tokenizer of tests/readout/test_languages.py, and two of its languages
    **each("mbart plbart", ("mbart", "en_XX", "ro_RO")),
    **each("m2m_100 nllb-moe", ("nllb", "eng_Latn", "ron_Latn")),
}
REFUSED = {
    "umt5": "position_bias",
    **each("seamless_m4t seamless_m4t_v2", "no body apart from its head"),
}
ENCODERS = {"mpnet", "megatron-bert"}
VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "depth": 2}
VISION |= {"intermediate_size": 48, "image_size": 28, "patch_size": 14, "num_heads": 4}
VISION |= {"out_hidden_size": 32, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
MULTIMODAL = {
    "gemma3": ("Gemma3ForConditionalGeneration", {}),
    "mistral3": ("Mistral3ForConditionalGeneration", {}),
    "llava": ("LlavaForConditionalGeneration", {}),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", {"rope_parameters": MROPE}),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", {"rope_parameters": MROPE}),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", {"rope_parameters": MROPE}),
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", _LINEAR),
}
GROUPS = {"causal": {**CAUSAL, **SCALED}, "masked": MASKED, "seq2seq": SEQ2SEQ}
AUTO = {
    "causal": transformers.AutoModelForCausalLM,
    "masked": transformers.AutoModelForMaskedLM,
    "seq2seq": transformers.AutoModelForSeq2SeqLM,
}


def group_of(kind):
    """Return whether a model is causal, masked or seq2seq."""
    groups = {**GROUPS, "masked": MASKED.keys() | ENCODERS}
    return next((group for group, own in groups.items() if kind in own), "causal")


def config_of(kind, **more):
    sizes = {**SIZES, "vocab_size": wordpiece_tokenizer().get_vocab_size(), **more}
    if kind == "t5gemma":
        own = {key: value for key, value in sizes.items() if hasattr(half(), key)} | _WINDOW
        return AutoConfig.for_model(kind, encoder=own, decoder=own, vocab_size=own["vocab_size"])
    usual = AutoConfig.for_model(kind)
    known = {*usual.to_dict(), *type(usual).attribute_map}
    return AutoConfig.for_model(kind, **{key: v for key, v in sizes.items() if key in known})


def half():
    return AutoConfig.for_model("t5gemma").encoder


def make(kind, folder, **more):
    """Write a tiny random model and its tokenizer; return the folder."""
    group = group_of(kind)
    more = {**GROUPS[group].get(kind, CLOSED.get(kind, {})), **more}
    config = config_of(kind.split("-")[0] if kind in SCALED else kind, **more)
    torch.manual_seed(0)
    model = AUTO[group].from_config(config).float()
    for name, parameter in model.named_parameters():  # no zero biases, no equal norms
        norm = parameter.dim() < 2 and "norm" in name.lower() and name.endswith("weight")
        parameter.data.normal_(mean=float(norm), std=0.1 if parameter.dim() < 2 else 0.15)
    model.save_pretrained(folder)
    write_tokenizer(folder, wordpiece_tokenizer(), SPECIAL)
    return folder


def make_multimodal(kind, folder, **more):
    """Write a tiny random model that also reads images, and its tokenizer; return the model."""
    name, usual_more = MULTIMODAL[kind]
    usual = AutoConfig.for_model(kind)
    text = {**SIZES, "vocab_size": wordpiece_tokenizer().get_vocab_size(), **usual_more, **more}
    parts = {}
    for part, sizes in {"text_config": text, "vision_config": VISION}.items():
        config = getattr(usual, part)
        known = {*config.to_dict(), *type(config).attribute_map}
        parts[part] = {key: size for key, size in sizes.items() if key in known}
        parts[part]["model_type"] = config.model_type
    torch.manual_seed(0)
    model = getattr(transformers, name)(AutoConfig.for_model(kind, **parts)).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.15)
    model.save_pretrained(folder)
    write_tokenizer(folder, wordpiece_tokenizer(), SPECIAL)
    return model


ENTRIES = [*CLASSES, "mistral", "qwen2", "qwen3", *FAMILIES]


def write(kind, folder, **more):
    """Write a tiny random model of any kind, with a tokenizer that it can read."""
    folder.mkdir(exist_ok=True)
    if kind in MULTIMODAL:
        make_multimodal(kind, folder, **more)
    elif kind in TRANSLATE:
        from tests.readout.test_languages import tokenizer

        make(kind, folder, vocab_size=tokenizer(TRANSLATE[kind][0], folder))
        (folder / "tokenizer.json").unlink()
        tokenizer(TRANSLATE[kind][0], folder)
    elif kind in ENTRIES and kind not in ("gpt2", "llama", "mistral", "qwen2", "qwen3"):
        write_tiny(folder, kind)
    else:  # key heads that divide over ranks
        make(kind, folder, **more)
