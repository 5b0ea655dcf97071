"""LoRA against PEFT's own models on equal weights; what is shared, kept apart, and refused."""

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as PEFTS

from ptrun.backbone.base import checksum
from ptrun.backbone.joining import join, split
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.registry import families
from ptrun.method.lora import LoRA
from tests.backbone import types
from tests.backbone.inputs import KINDS, LENGTHS, text
from tests.families import FAMILIES
from tests.small_runs import conll03, engine, sst2
from tests.tiers import tiered

R = 3
FIRST = ("bert", "gpt2", "t5")


def moved(backbone, data_dir, **keys):
    """Return a method with random low-rank tensors, in place in its backbone."""
    torch.manual_seed(1)
    method = LoRA(backbone, sst2(data_dir), rank=R, alpha=6, **keys)
    for tensor in method.lora.parameters():
        torch.nn.init.normal_(tensor, std=0.1)
    engine(backbone).place([method])
    return method


def of_type(kind, folder):
    backbone = PretrainedBackbone(name=kind, path=str(types.make(kind, folder)), dtype="fp32")
    backbone.load()
    return backbone


def given(backbone, *members, **changes):
    """Return the text once for each method, with the updates of each."""
    one = text(backbone)
    rows = one.mask.shape[0]
    return [replace(one, updates=[own.updates(rows)] if own else (), **changes) for own in members]


def read(backbone, method=None, **changes):
    with torch.no_grad():
        return backbone.forward(*given(backbone, method, **changes)).hidden


def peft_model(folder, method, backbone):
    """Return PEFT's model of a folder, with a method's tensors copied into it by name."""
    targets = list(backbone.architecture.attention_maps)
    model = backbone.architecture.model_class.from_pretrained(folder, attn_implementation="eager")
    conv = backbone.config["model_type"] == "gpt2"
    config = LoraConfig(r=R, lora_alpha=6, target_modules=targets, fan_in_fan_out=conv)
    made = get_peft_model(model, config).eval()
    own = {n.replace("default.", ""): p for n, p in made.named_parameters() if "lora_" in n}
    for names in method.shared:
        low_rank = method.lora[names[0].replace(".", "_")]
        for theirs, ours in (("lora_A", low_rank.down), ("lora_B", low_rank.up)):
            own.pop(f"base_model.model.{names[0]}.{theirs}.weight").data.copy_(ours.weight)
    assert not own
    return made


@pytest.mark.parametrize(
    "kind", tiered([kind for kind in KINDS if kind != "blocklm"], lambda kind: kind in FIRST)
)
def test_hidden_states_and_gradients_are_pefts(tiny, tiny_folder, data_dir, kind):
    backbone = tiny(kind)
    method = moved(backbone, data_dir)
    theirs = peft_model(tiny_folder(kind), method, backbone)
    (own,) = given(backbone, method)
    inputs = {"input_ids": own.ids, "attention_mask": own.mask.long()}
    if own.decoder is not None:
        inputs |= {"decoder_input_ids": own.decoder.ids}
        inputs |= {"decoder_attention_mask": own.decoder.mask.long()}
    out = theirs(**inputs, output_hidden_states=True)
    states = out.decoder_hidden_states if own.decoder is not None else out.hidden_states
    at = own.hidden_at
    expected, ours = states[-1][at.rows, at.columns], backbone.forward(own).hidden
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    for hidden in (expected, ours):
        hidden.square().mean().backward()
    grads = {n: p.grad for n, p in theirs.named_parameters() if p.requires_grad}
    assert sum(p.numel() for p in method.lora.parameters()) == sum(
        g.numel() for g in grads.values()
    )
    for names in method.shared:
        own = method.lora[names[0].replace(".", "_")].up.weight.grad
        peft = grads[f"base_model.model.{names[0]}.lora_B.default.weight"]
        torch.testing.assert_close(own, peft, atol=1e-5, rtol=1e-4)


def test_the_default_targets_are_pefts_for_every_family():
    every = families() | FAMILIES
    own = {kind: family.attention_maps for kind, family in every.items()}
    assert own.keys() - PEFTS.keys() == {"albert", "blocklm", "megatron"}
    assert all(set(own[kind]) == set(PEFTS[kind]) for kind in own.keys() & PEFTS.keys())


@pytest.mark.parametrize("kind", tiered(KINDS, lambda kind: kind in FIRST))
def test_it_starts_from_the_bare_backbone_and_leaves_it_bare(tiny, data_dir, kind):
    backbone = tiny(kind)
    bare, sum_, size = read(backbone), checksum(backbone.model), backbone.size()
    method = LoRA(backbone, sst2(data_dir), rank=R)
    engine(backbone).place([method])
    assert torch.equal(read(backbone, method), bare)
    with torch.no_grad():
        for low_rank in method.lora.values():
            low_rank.up.weight.normal_()
    assert not torch.equal(read(backbone, method), bare)
    assert torch.equal(read(backbone), bare)
    assert checksum(backbone.model) == sum_ and backbone.size() == size
    assert not any(p.requires_grad for p in backbone.model.parameters())


def test_placed_again_it_adds_once(tiny, data_dir):
    backbone = tiny()
    method = moved(backbone, data_dir)
    once = read(backbone, method)
    engine(backbone).place([method, LoRA(backbone, sst2(data_dir), rank=R)])
    assert torch.equal(read(backbone, method), once)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("kind", tiered(KINDS, lambda kind: kind in FIRST))
def test_in_one_pass_each_member_has_its_own_updates(tiny, data_dir, kind, train):
    """Also where tokens are packed, and with dropout, which two of the three have."""
    backbone = tiny(kind)
    every = dict.fromkeys(
        n.rpartition(".")[2] for n in backbone.architecture.linear_maps(backbone.model)
    )
    targets = [name for name in every if name not in backbone.architecture.position_maps]
    rates = (0.0, 0.3, 0.5) if train else (0.0,) * 3
    members = [moved(backbone, data_dir, targets=targets, dropout=rate) for rate in rates]
    for index, own in enumerate(members):
        for tensor in own.lora.parameters():
            tensor.data *= index + 1
    keys = {"keys": torch.arange(len(LENGTHS))} if train else {}
    parts = given(backbone, *members, **keys)
    together = [own.hidden for own in split(backbone.forward(join(parts)), parts)]
    alone = [backbone.forward(part).hidden for part in parts]
    for ours, expected in zip(together, alone, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
    assert (alone[0] - alone[1]).abs().max() > 1e-2


@pytest.mark.parametrize(
    "kind", tiered([kind for kind in KINDS if kind != "deberta-v2"], lambda kind: kind in FIRST)
)
def test_dropout_depends_on_a_rows_key_alone(tiny, data_dir, kind):
    backbone = tiny(kind)
    method = moved(backbone, data_dir, dropout=0.5)
    for module in backbone.model.modules():
        if hasattr(module, "slot") and module.site < 3_000_000:
            module.p = 0.0
    keys = torch.arange(len(LENGTHS))
    plain, dropped = read(backbone, method), read(backbone, method, keys=keys)
    assert not torch.equal(plain, dropped)
    assert torch.equal(dropped, read(backbone, method, keys=keys))
    other = read(backbone, method, keys=torch.tensor([0, 1, 9]))
    at = text(backbone).hidden_at.rows
    assert torch.equal(dropped[at < 2], other[at < 2])
    assert not torch.equal(dropped[at == 2], other[at == 2])


@pytest.mark.parametrize(("kind", "layers"), [("t5", 3), ("bart", 2)])
def test_a_tagger_leaves_the_decoder_alone(tiny, data_dir, tmp_path, kind, layers):
    backbone = tiny(kind) if kind == "t5" else of_type(kind, tmp_path)
    names = LoRA(backbone, conll03(data_dir), rank=R).learned()
    assert len(names) == 2 + 2 * 2 * layers and not [n for n in names if "decoder" in n]


def test_maps_that_read_an_axis_of_heads_share_a_pass(tmp_path, data_dir):
    """DeepSeek's map to keys and values reads packed tokens as `[1, 1, N, in]`."""
    backbone = of_type("deepseek_v3", tmp_path)
    parts = given(backbone, *(moved(backbone, data_dir, dropout=rate) for rate in (0.0, 0.3)))
    together = split(backbone.forward(join(parts)), parts)
    for part, ours in zip(parts, together, strict=True):
        torch.testing.assert_close(ours.hidden, backbone.forward(part).hidden)
