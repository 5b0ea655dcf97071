"""A tiny T5 with a head of its own, and its tensors as Megatron would have saved them."""

from pathlib import Path

import torch
from transformers import T5Config, T5ForConditionalGeneration

NAMES = {  # of transformers, to the shards'; q, k and v are joined by `fused`
    "layer.0.SelfAttention.o": "self_attn.self_attn.dense",
    "layer.0.SelfAttention.relative_attention_bias": "self_attn.self_attn.relative_attention_bias",
    "layer.0.layer_norm": "self_attn.layer_norm",
}
CROSS = {
    "layer.1.EncDecAttention.q": "cross_attn.cross_attn.project_q",
    "layer.1.EncDecAttention.o": "cross_attn.cross_attn.dense",
    "layer.1.layer_norm": "cross_attn.layer_norm",
}


def untied_t5(**sizes):
    """Return a T5 v1.1 model with random weights everywhere, norms too, and its own lm_head."""
    shape = {"d_model": 64, "d_kv": 8, "num_heads": 8, "d_ff": 128, "vocab_size": 128}
    shape |= {"num_layers": 2, "num_decoder_layers": 3, "feed_forward_proj": "gated-gelu"}
    settings = {"dropout_rate": 0.0, "decoder_start_token_id": 1, "tie_word_embeddings": False}
    torch.manual_seed(3)
    model = T5ForConditionalGeneration(T5Config(**(shape | settings | sizes)))
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, 1.0 if "layer_norm" in name else 0.0, 0.2)
    return model.eval()


def feed_forward(layer):
    inner, outer = f"layer.{layer}.DenseReluDense", "ff.dense_relu_dense"
    parts = {f"{inner}.{part}": f"{outer}.{part}" for part in ("wi_0", "wi_1", "wo")}
    return parts | {f"layer.{layer}.layer_norm": "ff.layer_norm"}


def part(tensor, rank, ranks, axis):
    return tensor.chunk(ranks, axis)[rank].clone()


def fused(tensors, rank, ranks):
    return torch.cat([part(tensor, rank, ranks, 0) for tensor in tensors])


def rank_state(model, rank, ranks):
    """Return what a rank holds, in the order of the official code's modules."""
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    out = {"word_embeds.weight": part(state["shared.weight"], rank, ranks, 0)}
    out["lm_head.weight"] = part(state["lm_head.weight"], rank, ranks, 0)
    for stack in ("encoder", "decoder"):
        out[f"{stack}.word_embeds.weight"] = out["word_embeds.weight"]
        out[f"{stack}.final_layernorm.weight"] = state[f"{stack}.final_layer_norm.weight"].clone()
        for i in range(len(getattr(model, stack).block)):
            block, target = f"{stack}.block.{i}", f"{stack}.blocks.{i}"
            layers = NAMES | (CROSS | feed_forward(2) if stack == "decoder" else feed_forward(1))
            for old, new in layers.items():
                if f"{block}.{old}.weight" in state:
                    tensor = state[f"{block}.{old}.weight"]
                    tensor = tensor.clone() if "norm" in new else cut(tensor, new, rank, ranks)
                    out[f"{target}.{new}.weight"] = tensor
            own = [state[f"{block}.layer.0.SelfAttention.{x}.weight"] for x in "qkv"]
            out[f"{target}.self_attn.self_attn.project.weight"] = fused(own, rank, ranks)
            if stack == "decoder":
                cross = [state[f"{block}.layer.1.EncDecAttention.{x}.weight"] for x in "kv"]
                out[f"{target}.cross_attn.cross_attn.project_kv.weight"] = fused(cross, rank, ranks)
    return out


def cut(tensor, name, rank, ranks):
    by_columns = name.endswith(("dense", "wo", "relative_attention_bias"))
    return part(tensor, rank, ranks, 1 if by_columns else 0)


def write_shards(model, folder: Path, ranks: int, change=None, **extra) -> Path:
    """Write a checkpoint; `change(rank, state)` may spoil a rank first."""
    bookkeeping = {"iteration": 100, "global_steps": 100, "optimizer": None, "mp_world_size": ranks}
    name = "mp_rank_{:02d}_model_states.pt"
    (folder / "100").mkdir(parents=True)
    for rank in range(ranks):
        state = rank_state(model, rank, ranks)
        if change is not None:
            change(rank, state)
        torch.save({"module": state} | bookkeeping | extra, folder / "100" / name.format(rank))
    (folder / "latest_checkpointed_iteration.txt").write_text("100\n")
    return folder


def divided(model):
    """Return a copy as PPT's conversion divides it, written down anew from its description."""
    import copy

    small = copy.deepcopy(model)
    with torch.no_grad():
        small.shared.weight /= 100
        for module in small.modules():
            if type(module).__name__ == "T5Attention":
                module.o.weight /= 100
            if type(module).__name__ == "T5DenseGatedActDense":
                module.wi_1.weight /= 10
                module.wo.weight /= 10
    return small
