"""GLM on GPT-2's stack: parity with a plain reference, and the invariants of its specification."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.base import Positions, Prefix
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build
from ptrun.config.compose import compose_run
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import keys_values
from tests.backbone.inputs import ANSWER, BLANK, LENGTHS, every, text
from tests.papers import glm_reference
from tests.readings import method_of
from tests.small_runs import sst2

HEADS, LAYERS = 2, 3


def row(given, index):
    """Return ids, both positions and sep of one row, as GLM's own code lays it out."""
    length, size = LENGTHS[index], ANSWER[index]
    ids = torch.cat([given.ids[index, :length], given.decoder.ids[index, :size]])
    places = torch.cat([torch.arange(length), torch.full((size,), BLANK - 1)])
    inside = torch.cat([torch.zeros(length, dtype=torch.long), torch.arange(1, size + 1)])
    return ids, places, inside, length


def state(backbone):
    return glm_reference.original(dict(backbone.model.named_parameters()))


def test_logits_are_the_plain_references(tiny):
    backbone = tiny("blocklm")
    given = text(backbone)
    found = backbone.forward(given).logits.split(ANSWER)
    for index, own in enumerate(found):
        ids, places, inside, sep = row(given, index)
        wanted = glm_reference.logits(state(backbone), ids, places, inside, sep, HEADS)[sep:]
        torch.testing.assert_close(own, wanted, atol=1e-5, rtol=0)


def test_without_an_answer_the_text_is_read_both_ways(tiny):
    """GLM's classifier mode: sep is the length."""
    backbone = tiny("blocklm")
    given = replace(text(backbone), decoder=None, types=None)
    given = replace(given, hidden_at=None, logits_at=every(given.mask))
    found = backbone.forward(given).logits.split(LENGTHS)
    for index, own in enumerate(found):
        ids = given.ids[index, : LENGTHS[index]]
        places = torch.arange(len(ids))
        inside = torch.zeros_like(places)
        wanted = glm_reference.logits(state(backbone), ids, places, inside, len(ids), HEADS)
        torch.testing.assert_close(own, wanted, atol=1e-5, rtol=0)


def test_a_hidden_prefix_is_the_authors_and_equals_its_keys_and_values(tiny):
    """W p + b in place of the concatenation in front of attention's input: the same to 1e-6."""
    backbone = tiny("blocklm")
    given = text(backbone)
    states = torch.randn(4, LAYERS, 32)
    sites = [("text", ("attention", layer)) for layer in range(LAYERS)]
    made = keys_values(backbone, sites, states)
    slices = made.permute(1, 2, 0, 3)[:, None].expand(-1, len(LENGTHS), -1, -1, -1)
    prefixes = tuple(Prefix(slices[2 * i], slices[2 * i + 1]) for i in range(LAYERS))
    found = backbone.forward(replace(given, prefixes=prefixes)).logits.split(ANSWER)
    for index, own in enumerate(found):
        wanted = glm_reference.logits(state(backbone), *row(given, index), HEADS, states)
        torch.testing.assert_close(own, wanted[LENGTHS[index] :], atol=1e-5, rtol=0)
    with torch.no_grad():
        own = state(backbone)
        for layer in range(LAYERS):
            name = f"transformer.layers.{layer}.attention.query_key_value"
            weights = own[name + ".weight"], own[name + ".bias"]
            mixed = torch.nn.functional.linear(states[:, layer], *weights)
            wanted = mixed.view(4, 3, HEADS, 16)[:, 1:].transpose(0, 1)
            found = torch.stack([made[:, 2 * layer], made[:, 2 * layer + 1]])
            torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "hidden", "kv", "mlp", "prompt"),
    [
        ("glm_2b", 1_920_122_880, 7_372_800, 14_745_600, 76_694_016 + 204_800, 204_800),
        ("glm_10b", 9_880_682_496, 19_660_800, 39_321_600, 203_817_472 + 409_600, 409_600),
    ],
)
def test_published_counts_need_no_weights(name, count, hidden, kv, mlp, prompt, data_dir):
    """Parameters of the model, of 100 prefix vectors of each kind, and of 100 at the input."""
    words = [f"backbone={name}", "task=boolq", "method.length=100", "readout=verbalizer"]
    learned = {
        hidden: ["method=ptuning_v2"],
        kv: ["method=ptuning_v2", "method.prefix_kind=kv"],
        mlp: ["method=ptuning_v2", "method.prefix_kind=kv", "method.reparameterization=mlp"],
        prompt: ["method=prompt_tuning"],
    }
    for wanted, own in learned.items():
        composed = compose_run([*words, *own, f"data_dir={data_dir}"])
        config = composed.config
        backbone = build.build("backbone", config["backbone"])
        assert isinstance(backbone, PretrainedBackbone)
        assert backbone.size() == count == backbone.parameters
        task = build.build("task", config["task"], config["data_dir"], None)
        with torch.device("meta"):
            method = method_of(composed, backbone, task)
        assert method.learned_parameters()["total"] == wanted


def test_positions_without_a_blank_are_the_last_tokens(tiny):
    """What stands after the text: GLM's [gMASK] would be the last token."""
    backbone = tiny("blocklm")
    given = text(backbone)
    last = torch.nn.functional.one_hot(torch.tensor(LENGTHS) - 1, given.mask.shape[1])
    at = Positions(*given.decoder.mask.nonzero(as_tuple=True))
    told = backbone.forward(replace(given, types=last, logits_at=at)).logits
    untold = backbone.forward(replace(given, types=None, logits_at=at)).logits
    torch.testing.assert_close(untold, told, atol=0, rtol=0)


def test_a_soft_prompt_stands_after_the_first_token_and_takes_positions(tiny, data_dir):
    """P vectors have positions 1 to P; all that follows is numbered after them, the blank too."""
    backbone = tiny("blocklm")
    given, length = text(backbone), 2
    method = PromptTuning(backbone, sst2(data_dir), length=length)
    assert method.after == 1
    vectors = method.prompt.vectors().detach()
    embedded = method._put(vectors.expand(3, -1, -1), backbone.embed(given.ids))
    nothing = torch.zeros(3, length, dtype=torch.long)
    mask = method._put(nothing + 1, given.mask.long()).bool()
    prompted = replace(given, ids=None, embeddings=embedded, mask=mask)
    prompted = replace(prompted, types=method._put(nothing, given.types))
    found = backbone.forward(prompted).logits.split(ANSWER)
    own = state(backbone)
    for index, logits in enumerate(found):
        ids, _, inside, sep = row(given, index)
        table = torch.cat([own["word_embeddings.weight"], vectors])
        ids = torch.cat([ids[:1], len(table) - length + torch.arange(length), ids[1:]])
        blank = torch.full((ANSWER[index],), BLANK - 1 + length)
        places = torch.cat([torch.arange(sep + length), blank])
        inside = torch.cat([torch.zeros(length, dtype=torch.long), inside])
        changed_table = {**own, "word_embeddings.weight": table}
        wanted = glm_reference.logits(changed_table, ids, places, inside, sep + length, HEADS)
        known = len(table) - length
        torch.testing.assert_close(logits, wanted[sep + length :, :known], atol=1e-5, rtol=0)
