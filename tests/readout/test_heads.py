"""Linear heads equal the library's on equal weights: pooled, one a word, one an option."""

import numpy as np
import pytest
import torch
import transformers
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from ptrun.backbone.dropout import drop
from ptrun.readout.base import collate
from ptrun.readout.head import LabelHead, NumberHead, Shares, class_weights, read_keys
from ptrun.readout.heads import ChoiceHead, EntityHead, TokenHead
from ptrun.readout.spans import SpanHead
from ptrun.types import Example
from tests.readout.reading import CPU, fresh, loss_and_answers, read, task
from tests.small_runs import conll03, sst2

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def official(name, folder, **config):
    """Return a library model on a folder's weights, evaluating."""
    return getattr(transformers, name).from_pretrained(folder, **config).eval()


def copy(linear, into):
    """Put a linear map's weights into the library's, which may have no bias."""
    with torch.no_grad():
        into.weight.copy_(linear.weight)
        if into.bias is not None:
            into.bias.copy_(linear.bias)


def masked(batch):
    types = {} if batch.types is None else {"token_type_ids": batch.types}
    return {"input_ids": batch.ids, "attention_mask": batch.mask.long(), **types}


@torch.no_grad()
def scores(readout, examples):
    batch, output = read(readout, examples)
    return batch, readout.scores(output, batch)


def test_bert_labels_are_those_of_sequence_classification(tiny, tiny_folder, data_dir):
    data = task("rte", data_dir)
    head, examples = fresh(LabelHead(tiny(), data)), data.load("train")
    model = official("BertForSequenceClassification", tiny_folder("bert"), num_labels=2)
    copy(head.linear, model.classifier)
    batch, own = scores(head, examples)
    with torch.no_grad():
        theirs = model(**masked(batch), labels=batch.targets)
    torch.testing.assert_close(own, theirs.logits, **CLOSE)
    loss, answered = loss_and_answers(head, examples)
    assert abs(loss - float(theirs.loss)) < 1e-5
    assert answered == [data.labels[i] for i in theirs.logits.argmax(dim=-1)]


def test_roberta_with_its_own_pooler_is_the_library_s_head(tiny, tiny_folder, data_dir):
    """RoBERTa's classification head is dense + tanh + linear on the first token."""
    data = sst2(data_dir)
    head = fresh(LabelHead(tiny("roberta"), data, pooler="trainable"))
    model = official("RobertaForSequenceClassification", tiny_folder("roberta"), num_labels=2)
    copy(head.dense, model.classifier.dense)
    copy(head.linear, model.classifier.out_proj)
    batch, own = scores(head, data.load("train"))
    with torch.no_grad():
        torch.testing.assert_close(own, model(**masked(batch)).logits, **CLOSE)


@pytest.mark.parametrize("pooler", ["trainable", "frozen"])
@pytest.mark.parametrize(("kind", "name"), [("deberta", "Deberta"), ("deberta-v2", "DebertaV2")])
def test_debertas_pooler_has_gelu_as_the_library_s(tiny, tiny_folder, data_dir, kind, name, pooler):
    """DebertaForSequenceClassification's ContextPooler is dense + GELU; P-tuning v2's too."""
    head = fresh(LabelHead(tiny(kind), sst2(data_dir), pooler=pooler))
    model = official(f"{name}ForSequenceClassification", tiny_folder(kind), num_labels=2)
    copy(head.dense or head.backbone.model.pooler, model.pooler.dense)
    copy(head.linear, model.classifier)
    batch, own = scores(head, sst2(data_dir).load("train"))
    with torch.no_grad():
        torch.testing.assert_close(own, model(**masked(batch)).logits, **CLOSE)


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
    model = official("RobertaForSequenceClassification", tiny_folder("roberta"), num_labels=2)
    copy(head.dense, model.classifier.dense)
    copy(head.linear, model.classifier.out_proj)
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


def test_gpt2_is_read_at_the_last_token_of_each_row(tiny, tiny_folder, data_dir):
    """The library finds that token by the padding id, so padding is written with one."""
    data = sst2(data_dir)
    head = fresh(LabelHead(tiny("gpt2"), data))
    with torch.no_grad():
        head.linear.bias.zero_()
    model = official(
        "GPT2ForSequenceClassification", tiny_folder("gpt2"), num_labels=2, pad_token_id=1
    )
    copy(head.linear, model.score)
    batch, own = scores(head, data.load("train"))
    assert not batch.mask.all()
    with torch.no_grad():
        padded = batch.ids.masked_fill(~batch.mask, 1)
        theirs = model(input_ids=padded, attention_mask=batch.mask.long()).logits
    torch.testing.assert_close(own, theirs, **CLOSE)


def test_t5_is_read_at_the_decoder_s_first_token(tiny, tiny_folder, data_dir):
    data = sst2(data_dir)
    head = fresh(LabelHead(tiny("t5"), data))
    model = official("T5Model", tiny_folder("t5"))
    batch, own = scores(head, data.load("train"))
    with torch.no_grad():
        start = torch.zeros(len(batch), 1, dtype=torch.long)
        there = model(
            input_ids=batch.ids, attention_mask=batch.mask.long(), decoder_input_ids=start
        )
        torch.testing.assert_close(own, head.linear(there.last_hidden_state[:, 0]), **CLOSE)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
def test_the_mean_is_that_of_the_library_s_states_under_the_mask(tiny, tiny_folder, data_dir, kind):
    """As sentence-transformers: the sum of the states of tokens over their number."""
    data = sst2(data_dir)
    head = fresh(LabelHead(tiny(kind), data, pooler="mean"))
    model = official("T5EncoderModel" if kind == "t5" else "AutoModel", tiny_folder(kind))
    batch, own = scores(head, data.load("train"))
    assert not batch.mask.all() and batch.decoder is None
    with torch.no_grad():
        states = model(**masked(batch)).last_hidden_state
        mask = batch.mask[..., None].float()
        mean = (states * mask).sum(dim=1) / mask.sum(dim=1)
        torch.testing.assert_close(own, head.linear(mean), **CLOSE)


def test_options_are_compared_by_their_means(tiny, data_dir):
    """The score of an option is that of its row alone, so each answer is the best of its own."""
    data = task("race_middle", data_dir)
    head, examples = fresh(ChoiceHead(tiny(), data, pooler="mean")), data.load("train")
    batch, own = scores(head, examples)
    assert own.shape == (4 * len(examples), 1)
    loss, answered = loss_and_answers(head, examples)
    z = own.view(len(examples), 4)
    assert answered == z.argmax(dim=1).tolist()
    assert abs(loss - float(torch.nn.functional.cross_entropy(z, batch.targets))) < 1e-5


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


@pytest.mark.parametrize("unit", [1, 5])
def test_numbers_have_a_squared_error_of_the_number_divided_by_the_unit(
    tiny, tiny_folder, data_dir, unit
):
    """As fairseq and IDPG: the mean squared error of score / 5; answers are scores again."""
    data = task("glue_stsb", data_dir, unit=unit)
    head, examples = fresh(NumberHead(tiny(), data)), data.load("train")
    model = official("BertForSequenceClassification", tiny_folder("bert"), num_labels=1)
    copy(head.linear, model.classifier)
    batch, own = scores(head, examples)
    assert batch.targets.dtype == torch.float
    with torch.no_grad():
        theirs = model(**masked(batch), labels=batch.targets / unit)
    loss, answered = loss_and_answers(head, examples)
    assert abs(loss - float(theirs.loss)) < 1e-4 * float(theirs.loss)
    torch.testing.assert_close(torch.tensor(answered), unit * own[:, 0], **CLOSE)


def test_options_are_those_of_multiple_choice(tiny, tiny_folder, data_dir):
    data = task("race_middle", data_dir)
    head, examples = fresh(ChoiceHead(tiny(), data)), data.load("train")
    model = official("BertForMultipleChoice", tiny_folder("bert"))
    copy(head.linear, model.classifier)
    batch, own = scores(head, examples)
    shaped = {key: value.view(len(examples), 4, -1) for key, value in masked(batch).items()}
    with torch.no_grad():
        theirs = model(**shaped, labels=batch.targets)
    torch.testing.assert_close(own.view(-1, 4), theirs.logits, **CLOSE)
    loss, answered = loss_and_answers(head, examples)
    assert abs(loss - float(theirs.loss)) < 1e-5
    assert answered == theirs.logits.argmax(dim=-1).tolist()


def test_questions_with_fewer_options_have_their_own_softmax(tiny, data_dir):
    data = task("race_middle", data_dir)
    head, examples = fresh(ChoiceHead(tiny(), data)), data.load("train")[:2]
    examples[1].fields["options"][:] = examples[1].fields["options"][:2]
    alone = [loss_and_answers(head, [e])[0] for e in examples]
    together, answered = loss_and_answers(head, examples)
    assert abs(together - sum(alone) / 2) < 1e-5 and answered[1] in (0, 1)


def test_copa_pairs_the_premise_and_its_joining_word_with_each_choice(tiny, data_dir):
    data = task("copa", data_dir)
    head, example = ChoiceHead(tiny(), data), data.load("train")[0]
    rows = head.encode([example], 64)[0].rows
    pair = head.backbone.tokenizer()("The lamp went out. because", "The wind blew.")
    assert rows[0].ids == pair["input_ids"] and len(rows) == 2


def test_entities_are_binary_examples(tiny, tiny_folder, data_dir):
    data = task("record", data_dir)
    head, examples = fresh(EntityHead(tiny(), data)), data.load("train")[:3]
    model = official("BertForSequenceClassification", tiny_folder("bert"), num_labels=2)
    copy(head.linear, model.classifier)
    batch, own = scores(head, examples)
    assert batch.targets.tolist()[:4] == [0, 0, 0, 1]  # Eve
    with torch.no_grad():
        theirs = model(**masked(batch), labels=batch.targets)
    torch.testing.assert_close(own, theirs.logits, **CLOSE)
    loss, answered = loss_and_answers(head, examples)
    assert abs(loss - float(theirs.loss)) < 1e-5
    best = theirs.logits[:, 1].view(3, 4).argmax(dim=1)
    assert answered == [e.fields["entities"][i] for e, i in zip(examples, best, strict=True)]


def test_tags_are_those_of_token_classification_at_first_sub_tokens(tiny, tiny_folder, data_dir):
    data = conll03(data_dir)
    head, examples = fresh(TokenHead(tiny(), data)), data.load("train")
    model = official("BertForTokenClassification", tiny_folder("bert"), num_labels=5)
    copy(head.linear, model.classifier)
    batch, own = scores(head, examples)
    labels = torch.full_like(batch.ids, -100)
    labels[batch.reads.rows, batch.reads.columns] = batch.targets
    with torch.no_grad():
        theirs = model(**masked(batch), labels=labels)
    read_there = theirs.logits[batch.reads.rows, batch.reads.columns]
    torch.testing.assert_close(own, read_there, **CLOSE)
    loss, answered = loss_and_answers(head, examples)
    assert abs(loss - float(theirs.loss)) < 1e-5
    assert int((labels != -100).sum()) == sum(len(e.target) for e in examples)
    assert [len(tags) for tags in answered] == [len(e.target) for e in examples]


def test_a_first_sub_token_is_where_its_word_begins(tiny, data_dir):
    data = conll03(data_dir)
    head = TokenHead(tiny(), data)
    example = data.load("train")[0]
    words = [*example.fields["tokens"][:1], "xyz", "film"]
    made = head.encode([type(example)("x", {"tokens": words}, ["O", "B-PER", "O"])], 64)[0]
    tokens = head.backbone.tokenizer().convert_ids_to_tokens(made.rows[0].ids)
    begins = [i for i, t in enumerate(tokens) if not t.startswith(("##", "["))]
    assert made.rows[0].reads == begins and made.targets == [0, 1, 0] and len(begins) == 3


@pytest.mark.parametrize("count", [1, 2])
def test_spans_are_those_of_question_answering(tiny, tiny_folder, data_dir, count):
    """Two rows of equal length, so that the library's padding has no part in its softmax."""
    data = task("squad", data_dir)
    head, examples = fresh(SpanHead(tiny(), data)), data.load("train")[:1] * count
    model = official("BertForQuestionAnswering", tiny_folder("bert"))
    copy(head.linear, model.qa_outputs)
    batch, own = scores(head, examples)
    first, last = batch.targets.view(-1, 2).T
    with torch.no_grad():
        theirs = model(**masked(batch), start_positions=first, end_positions=last)
    assert batch.mask.all() and len(first) >= count
    torch.testing.assert_close(own[:, 0], theirs.start_logits.flatten(), **CLOSE)
    torch.testing.assert_close(own[:, 1], theirs.end_logits.flatten(), **CLOSE)
    assert abs(loss_and_answers(head, examples)[0] - float(theirs.loss)) < 1e-5


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
    assert class_weights("balanced", ["a", "b", "c", "d"], examples) == [*official, 1.0]
    assert class_weights("none", ["a", "b", "c"], examples) is None


def test_each_example_s_loss_has_the_weight_of_its_label(tiny, data_dir):
    data = sst2(data_dir)
    examples = data.load("train")[:5]
    head, plain = fresh(LabelHead(tiny(), data, weights="balanced")), fresh(LabelHead(tiny(), data))
    head.load_state_dict(plain.state_dict())
    head.weigh(examples)
    own, logits = scores(plain, examples)
    weights = torch.tensor(head.class_weights)
    each = functional.cross_entropy(logits, own.targets, reduction="none")
    expected = (each * weights[own.targets]).sum() / len(examples)
    assert loss_and_answers(head, examples)[0] == pytest.approx(float(expected), rel=1e-6)
    assert len({*head.class_weights}) == 2, "the labels are skewed"


def test_shares_are_a_mapping_of_the_labels_that_an_example_has():
    shares = Shares(["a", "b", "c"], torch.tensor([0.5, 0.25, 0.25]))
    assert dict(shares) == {"a": 0.5, "b": 0.25, "c": 0.25} == dict(shares.items())
    assert shares["b"] == 0.25 and list(shares) == ["a", "b", "c"] and len(shares) == 3
    assert list(Shares(range(2), torch.tensor([0.5, 0.5, 0.0])).values()) == [0.5, 0.5]
    with pytest.raises(KeyError):
        shares["d"]
