"""P-tuning v2 against PEFT's prefix tuning on equal weights, where PEFT works (0.21, 5.23).

PEFT goes through `past_key_values`. So it refuses DeBERTa and ALBERT, which take none, and
activation checkpointing empties its prefix in silence. On T5 it prefixes the decoder's
self-attention alone, needs heads x head size = H, hands layer i the pair of slices 2 i modulo n
(of an even n, half of what it learns is never read), and gives the prefix a relative position: the
two agree where the slices are put in that order and that bias is zero.
"""

from dataclasses import replace

import pytest
import torch
import transformers
from torch import nn

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.ptuning_v2 import PTuningV2
from tests import conftest
from tests.backbone.inputs import every
from tests.small_runs import conll03, sst2, train_batch
from tests.tiers import package

package("peft")
import peft  # noqa: E402

LENGTH = 4
MLP = {"reparameterization": "mlp", "hidden": 8}
PROJECTED = {"prefix_projection": True, "encoder_hidden_size": 8}


def pair(backbone, folder, task, name, kind, mlp=False, **keys):
    """Return our method and PEFT's model with the same prefix and the same weights."""
    torch.manual_seed(0)
    ours = PTuningV2(backbone, task, length=LENGTH, **(MLP if mlp else {}), **keys)
    for parameter in ours.prompt.parameters():
        nn.init.normal_(parameter)
    config = peft.PrefixTuningConfig(
        task_type=kind, num_virtual_tokens=LENGTH, **(PROJECTED if mlp else {})
    )
    labels = {} if "LM" in kind else {"num_labels": len(task.labels)}
    library = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, **labels)
    theirs = peft.get_peft_model(library, config).eval()
    prefix = theirs.prompt_encoder["default"]
    prefix.embedding.weight.data = ours.prompt.table.detach().clone()
    if mlp:
        prefix.transform.load_state_dict(ours.prompt.mlp.state_dict())
    return ours, theirs


@torch.no_grad()
def words(ours, batch, mask):
    """Return our language-model logits at all real positions."""
    given = replace(ours.inputs(batch), hidden_at=None, pooled_at=None, logits_at=every(mask))
    return ours.backbone.forward(given).logits


MODELS = {
    "BertForSequenceClassification": ("bert", "SEQ_CLS", sst2),
    "BertForTokenClassification": ("bert", "TOKEN_CLS", conll03),
    "RobertaForTokenClassification": ("roberta", "TOKEN_CLS", conll03),
    "ElectraForTokenClassification": ("electra", "TOKEN_CLS", conll03),
    "GPT2LMHeadModel": ("gpt2", "CAUSAL_LM", sst2),
    "LlamaForCausalLM": ("llama", "CAUSAL_LM", sst2),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("mlp", [False, True], ids=["embedding", "mlp"])
def test_logits_are_pefts(tiny, tiny_folder, data_dir, name, mlp):
    kind, task_type, data = MODELS[name]
    backbone, task = tiny(kind), data(data_dir)
    ours, theirs = pair(backbone, tiny_folder(kind), task, name, task_type, mlp)
    batch = train_batch(ours)
    types = {} if batch.types is None or "LM" in task_type else {"token_type_ids": batch.types}
    if "LM" not in task_type:
        head = theirs.base_model.classifier.modules_to_save["default"]
        head.load_state_dict(ours.readout.linear.state_dict())
    expected = theirs(batch.ids, batch.mask.long(), **types).logits
    if "LM" in task_type:
        found, expected = words(ours, batch, batch.mask), expected[batch.mask]
    else:
        found = ours.readout.scores(backbone.forward(ours.inputs(batch)), batch)
    if task_type == "TOKEN_CLS":
        expected = expected[batch.reads.rows, batch.reads.columns]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("biased", [False, True], ids=["without_bias", "with_bias"])
def test_t5s_decoder_differs_by_the_bias_of_the_prefix_alone(
    tmp_path, monkeypatch, data_dir, biased
):
    for key, size in (("d_kv", 16), ("num_decoder_layers", 3)):
        monkeypatch.setitem(conftest.T5_SIZES, key, size)
    folder, task = conftest.write_tiny(tmp_path / "t5", "t5"), sst2(data_dir)
    backbone = PretrainedBackbone(name="t5", path=str(folder))
    backbone.load()
    ours, theirs = pair(
        backbone, folder, task, "T5ForConditionalGeneration", "SEQ_2_SEQ_LM", stacks=["decoder"]
    )
    pairs = ours.prompt.table.detach().view(LENGTH, 3, -1)
    theirs.prompt_encoder["default"].embedding.weight.data = pairs[:, [0, 2, 1]].flatten(1)
    for model in (backbone.model, theirs.base_model):
        bias = model.decoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight
        bias.data.mul_(float(biased))
    batch = train_batch(ours)
    expected = theirs(
        batch.ids,
        batch.mask.long(),
        decoder_input_ids=batch.decoder,
        decoder_attention_mask=batch.decoder_mask.long(),
    ).logits[batch.decoder_mask]
    found = words(ours, batch, batch.decoder_mask)
    if biased:
        assert float((found - expected).detach().abs().max()) > 1e-3
    else:
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
