"""Linear heads beside their oracles: dropout, weights of labels, and what rows have alone."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from ptrun.backbone.dropout import drop
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.readout.base import collate
from ptrun.readout.head import LabelHead, Shares, read_keys
from ptrun.readout.heads import ChoiceHead, TokenHead
from ptrun.types import Example
from tests.readings import reading
from tests.readout.reading import CPU, fresh, loss_and_answers, read, task, words_only
from tests.small_runs import conll03, engine, member, sst2
from tests.task.test_multi import both

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@torch.no_grad()
def scores(readout, examples):
    batch, output = read(readout, examples)
    return batch, readout.scores(output, batch)


class Drawn(torch.nn.Module):
    """Dropout with given masks, one after another."""

    def __init__(self, masks):
        super().__init__()
        self.masks = iter(masks)

    def forward(self, x):
        return x * next(self.masks)


def test_the_classifier_has_dropout_before_and_after_its_dense_map(tiny, tiny_folder, data_dir):
    """RobertaClassificationHead, with the masks that ours draws."""
    head = fresh(LabelHead(tiny("roberta"), sst2(data_dir), pooler="classifier"))
    plain = LabelHead(tiny("roberta"), sst2(data_dir), pooler="trainable")
    plain.load_state_dict(head.state_dict())
    head.dropout = plain.dropout = 0.5
    model = transformers.RobertaForSequenceClassification.from_pretrained(tiny_folder("roberta"))
    model.classifier.dense.load_state_dict(head.dense.state_dict())
    model.classifier.out_proj.load_state_dict(head.linear.state_dict())
    examples = sst2(data_dir).load("train")
    with torch.no_grad():
        batch, output = read(head, examples, keys=torch.arange(len(examples)))
        own, once = head.scores(output, batch), plain.scores(output, batch)
        ones, keys = torch.ones_like(output.hidden), read_keys(batch)
        masks = [drop(ones, keys, site, 0.5) for site in (1_000_002, 1_000_001)]
        model.classifier.dropout = Drawn(masks)
        theirs = model.classifier(output.hidden[:, None])
    torch.testing.assert_close(own, theirs, **CLOSE)
    assert not torch.equal(*masks) and not torch.allclose(own, once)
    silent, calm = (scores(each, examples)[1] for each in (head, plain))
    torch.testing.assert_close(silent, calm)


def test_a_mean_has_one_dropout_for_each_row(tiny, data_dir):
    """The key is that of the row's first token, so dropout is that of a head on [CLS]."""
    data = sst2(data_dir)
    head = fresh(LabelHead(tiny(), data, pooler="mean"))
    head.dropout = 0.5
    examples = data.load("train")
    keys = torch.arange(len(examples))
    with torch.no_grad():
        batch, output = read(head, examples, keys=keys)
        means = torch.stack([states.mean(dim=0) for states in batch.by_row(output.hidden)])
        first = collate(LabelHead(tiny(), data).encode(examples, 64), keys, CPU)
        kept = drop(means, read_keys(first), 1_000_001, 0.5)
        torch.testing.assert_close(head.scores(output, batch), head.linear(kept), **CLOSE)


def test_questions_with_fewer_options_have_their_own_softmax(tiny, data_dir):
    data = task("race_middle", data_dir)
    head, examples = fresh(ChoiceHead(tiny(), data)), data.load("train")[:2]
    examples[1].fields["options"][:] = examples[1].fields["options"][:2]
    alone = [loss_and_answers(head, [e])[0] for e in examples]
    together, answered = loss_and_answers(head, examples)
    assert abs(together - sum(alone) / 2) < 1e-5 and answered[1] in (0, 1)


def test_a_first_sub_token_is_where_its_word_begins(tiny, data_dir):
    data = conll03(data_dir)
    head = TokenHead(tiny(), data)
    example = data.load("train")[0]
    words = [*example.fields["tokens"][:1], "xyz", "film"]
    made = head.encode([type(example)("x", {"tokens": words}, ["O", "B-PER", "O"])], 64)[0]
    tokens = head.backbone.tokenizer().convert_ids_to_tokens(made.rows[0].ids)
    begins = [i for i, t in enumerate(tokens) if not t.startswith(("##", "["))]
    assert made.rows[0].reads == begins and made.targets == [0, 1, 0] and len(begins) == 3


def test_rows_of_an_example_have_dropout_of_their_own(tiny, data_dir):
    """The same row thrice differs in training; alone or beside others it is the same."""
    data = task("race_middle", data_dir)
    head = fresh(ChoiceHead(tiny(), data))
    head.dropout = 0.3
    example = data.load("train")[0]
    example.fields["options"][:] = ["in Oslo"] * 3
    keys = torch.tensor([7, 8])
    batch, output = read(head, [example, example], keys)
    together = head.scores(output, batch)[:, 0]
    assert len(set(together.tolist())) == 6
    for key, own in zip(keys, together.view(2, 3), strict=True):
        one, said = read(head, [example], key[None])
        torch.testing.assert_close(head.scores(said, one)[:, 0], own, **CLOSE)
    plain, said = read(head, [example, example])
    assert len({round(s, 4) for s in head.scores(said, plain)[:, 0].tolist()}) == 1


def test_keys_of_neighbouring_examples_and_rows_never_meet(tiny, data_dir):
    data = task("race_middle", data_dir)
    features = ChoiceHead(tiny(), data).encode(data.load("train"), 64)
    batch = collate(features, torch.arange(len(features)), CPU)
    assert len(set(batch.keys.tolist())) == len(batch) == 4 * len(features)


def test_balanced_weights_are_sklearn_s():
    targets = ["a"] * 7 + ["b"] * 2 + ["c"]
    examples = [Example(str(i), {}, target) for i, target in enumerate(targets)]
    official = compute_class_weight("balanced", classes=np.array(["a", "b", "c"]), y=targets)
    head = LabelHead(words_only(None), SimpleNamespace(labels=["a", "b", "c", "d"]))
    head.weigh(examples)
    assert head.weights is None
    head.class_weights = "balanced"
    head.weigh(examples)
    assert head.weights == [*official, 1.0]


def test_each_example_s_loss_has_the_weight_of_its_label(tiny, data_dir):
    data = sst2(data_dir)
    examples = data.load("train")[:5]
    head, plain = fresh(LabelHead(tiny(), data)), fresh(LabelHead(tiny(), data))
    head.class_weights = "balanced"
    head.load_state_dict(plain.state_dict())
    head.weigh(examples)
    own, logits = scores(plain, examples)
    weights = torch.tensor(head.weights)
    each = functional.cross_entropy(logits, own.targets, reduction="none")
    expected = (each * weights[own.targets]).sum() / len(examples)
    assert loss_and_answers(head, examples)[0] == pytest.approx(float(expected), rel=1e-6)
    assert len({*head.weights}) == 2, "the labels are skewed"


def test_shares_are_a_mapping_of_the_labels_that_an_example_has():
    shares = Shares(["a", "b", "c"], torch.tensor([0.5, 0.25, 0.25]))
    assert dict(shares) == {"a": 0.5, "b": 0.25, "c": 0.25} == dict(shares.items())
    assert shares["b"] == 0.25 and list(shares) == ["a", "b", "c"] and len(shares) == 3
    assert list(Shares(range(2), torch.tensor([0.5, 0.5, 0.0])).values()) == [0.5, 0.5]
    with pytest.raises(KeyError):
        shares["d"]


# One prompt, a head for each data set: MPT-2's promises (P-tuning v2 §5).


def joint(backbone, task, pooler="none"):
    return PTuningV2(backbone, task, reading("head", pooler=pooler), length=3)


def test_a_batch_of_one_set_leaves_the_other_head_without_gradient(tiny, data_dir):
    backbone = tiny()
    one = member(joint, backbone, both(data_dir))
    batch = engine(backbone)._collate([f for f in one.features if f.facts["set"] == "conll03"])
    one.method.loss(backbone.forward(one.method.inputs(batch)), batch).backward()
    heads = one.method.readout.heads
    assert heads["conll03"].linear.weight.grad.abs().sum() > 0
    assert heads["sst2"].linear.weight.grad is None
    assert one.method.prompt.table.grad.abs().sum() > 0


@pytest.mark.parametrize(("kind", "pooler"), [("bert", "none"), ("bert", "mean"), ("t5", "mean")])
def test_answers_and_loss_are_those_of_the_heads_alone(tiny, data_dir, kind, pooler):
    """A mixed batch answers as each data set's own method with the same prompt and head."""
    backbone, task = tiny(kind), both(data_dir)
    torch.manual_seed(0)
    whole = joint(backbone, task, pooler)
    fit = engine(backbone, 10_000)
    features = whole.encode(task.load("test"))
    mixed = fit.predict([whole], [features[::2] + features[1::2]])[0]
    batch = fit._collate(features)
    total = whole.loss(backbone.forward(whole.inputs(batch)), batch)
    losses, answers = [], {}
    for name, make in (("sst2", sst2), ("conll03", conll03)):
        alone = joint(backbone, make(data_dir), pooler if name == "sst2" else "auto")
        state = whole.state_dict()
        head = f"readout.heads.{name}."
        own = {k.replace(head, "readout."): v for k, v in state.items() if k.startswith(head)}
        alone.load_state_dict({**own, "prompt.table": state["prompt.table"]})
        rows = alone.encode(make(data_dir).load("test"))
        part = fit._collate(rows)
        losses.append(alone.loss(backbone.forward(alone.inputs(part)), part))
        answers |= {f"{name}:{p.id}": p.value for p in fit.predict([alone], [rows])[0]}
    torch.testing.assert_close(total, sum(losses), atol=1e-4, rtol=1e-5)
    assert {p.id: p.value for p in mixed} == answers
