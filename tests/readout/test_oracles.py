"""Read-outs equal transformers' classes on equal weights: logits, loss, gradients, answers.

The gradients are those of the word embeddings, through which all of a pass goes, and of the head.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
import torch
import transformers
from torch.nn import functional

from ptrun.pattern.pattern import read_pvp
from ptrun.readout.class_words import ClassWords
from ptrun.readout.head import Head, LabelHead, NumberHead
from ptrun.readout.heads import ChoiceHead, EntailmentHead, EntityHead, TokenHead
from ptrun.readout.label_words import FactWords, LabelWords
from ptrun.readout.multilabel import LabelsHead
from ptrun.readout.original import ClassWordsReading
from ptrun.readout.spans import PassageWords, SpanHead
from ptrun.readout.verbalizer import VerbalizerReading
from tests.facts import rows_of
from tests.readings import readout_for
from tests.readout.reading import fresh, pocket, read, task
from tests.small_runs import sst2


def likeliest_label(logits, batch, readout):
    return [readout.task.labels[i] for i in logits.argmax(dim=-1)]


@dataclass(frozen=True)
class Oracle:
    """A read-out, and the class of transformers that it should equal.

    Args:
        make: (backbone, folder of data) → our read-out.
        kind: the model type, or a shipped model.
        auto: their class.
        weights: our layers, and theirs that get our weights.
        config: more arguments of their class.
        logits: (their output, batch, read-out) → what we compute, one row a read.
        labels: (batch, read-out) → the arguments that their class learns from.
        loss: (their logits, batch, read-out, examples) → the loss summed, if not their class's.
        answers: (their logits, batch, read-out) → predictions; None is another test's.
        examples: how many are read.
    """

    make: Callable
    kind: str
    auto: str
    weights: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, object] = field(default_factory=dict)
    logits: Callable = lambda out, batch, readout: out.logits
    labels: Callable = lambda batch, readout: {"labels": batch.targets}
    loss: Callable | None = None
    answers: Callable | None = likeliest_label
    examples: int = 6


def at_reads(out, batch, readout):
    return out.logits[batch.reads.rows, batch.reads.columns]


# Heads: transformers' class has the loss.


def head(make, name, changes=(), **keys):
    return lambda backbone, rows: make(backbone, task(name, rows, **dict(changes)), **keys)


def tag_grid(batch, readout):
    """Return the tag of each word at its first token, -100 elsewhere."""
    labels = torch.full_like(batch.ids, -100)
    labels[batch.reads.rows, batch.reads.columns] = batch.targets
    return {"labels": labels}


def likeliest_tags(logits, batch, readout):
    return [likeliest_label(own, batch, readout) for _, own in batch.pairs(logits)]


def starts_and_ends(out, batch, readout):
    both = torch.stack([out.start_logits, out.end_logits], dim=-1)
    return both[batch.reads.rows, batch.reads.columns]


def span(batch, readout):
    first, last = batch.targets.view(-1, 2).T
    return {"start_positions": first, "end_positions": last}


def likeliest_entity(logits, batch, readout):
    best = [own[:, 1].argmax() for own in batch.rows_by_example(logits)]
    return [f.facts["values"][i] for f, i in zip(batch.features, best, strict=True)]


def likeliest_choice(logits, batch, readout):
    return logits.view(-1, 4).argmax(dim=1).tolist()


def most_entailed(logits, batch, readout):
    """By probability: the greatest logit of `entailed` alone could be another label's."""
    shares = batch.rows_by_example(logits.softmax(dim=1)[:, 1])
    return [readout.task.labels[own.argmax()] for own in shares]


def above_a_half(logits, batch, readout):
    labels = readout.task.labels
    return [[label for label, z in zip(labels, own, strict=True) if z > 0] for own in logits]


def first_of_decoder(out, batch, readout):
    return readout.linear(out.last_hidden_state[:, 0])


def mean(out, batch, readout):
    """As sentence-transformers: the sum of the states of tokens over their number."""
    assert batch.decoder is None and not batch.mask.all()
    mask = batch.mask[..., None].float()
    return readout.linear((out.last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1))


def cross_entropy(logits, batch, readout, examples):
    return functional.cross_entropy(logits, batch.targets, reduction="sum")


TOPICS = {"pocket": "pocket_two_topics", "rows": {"train": 12, "validation": 6, "test": 6}}
DESCRIBED = {"negative": "the film was dull", "positive": "good"}
TEXT, LINEAR = "BertForSequenceClassification", {"linear": "classifier"}
OF_STATES = {"labels": lambda batch, readout: {}, "loss": cross_entropy}
MEAN = head(LabelHead, "sst2", pooler="mean")
HEADS = {
    "labels": Oracle(head(LabelHead, "rte"), "bert", TEXT, LINEAR),
    "labels, roberta": Oracle(
        head(LabelHead, "sst2", pooler="trainable"),
        "roberta",
        "RobertaForSequenceClassification",
        {"dense": "classifier.dense", "linear": "classifier.out_proj"},
    ),
    "labels, gpt2": Oracle(  # it finds the last token by the padding id
        head(LabelHead, "sst2"),
        *("gpt2", "GPT2ForSequenceClassification", {"linear": "score"}, {"pad_token_id": 1}),
    ),
    "labels, t5": Oracle(
        head(LabelHead, "sst2"), "t5", "T5Model", logits=first_of_decoder, **OF_STATES
    ),
    "mean, bert": Oracle(MEAN, "bert", "BertModel", logits=mean, **OF_STATES),
    "mean, gpt2": Oracle(MEAN, "gpt2", "GPT2Model", logits=mean, **OF_STATES),
    "mean, t5": Oracle(MEAN, "t5", "T5EncoderModel", logits=mean, **OF_STATES),
    "entities": Oracle(
        head(EntityHead, "record"), "bert", TEXT, LINEAR, answers=likeliest_entity, examples=3
    ),
    "entailment": Oracle(
        head(EntailmentHead, "sst2", {"descriptions": DESCRIBED}),
        *("bert", TEXT, LINEAR),
        answers=most_entailed,
    ),
    "options": Oracle(
        head(ChoiceHead, "race_middle"),
        *("bert", "BertForMultipleChoice", LINEAR),
        logits=lambda out, batch, readout: out.logits.reshape(-1, 1),
        answers=likeliest_choice,
    ),
    "options, means": Oracle(
        head(ChoiceHead, "race_middle", pooler="mean"),
        *("bert", "BertModel"),
        logits=mean,
        labels=lambda batch, readout: {},
        loss=lambda logits, *rest: cross_entropy(logits.view(-1, 4), *rest),
        answers=likeliest_choice,
    ),
    "several labels": Oracle(
        head(LabelsHead, "pocket_two_topics", {"source": TOPICS}),
        *("bert", TEXT, LINEAR, {"problem_type": "multi_label_classification"}),
        labels=lambda batch, readout: {"labels": batch.targets.view(len(batch), -1)},
        answers=above_a_half,
    ),
    "span": Oracle(  # of one example: padding has a part in their softmax
        head(SpanHead, "squad"),
        *("bert", "BertForQuestionAnswering", {"linear": "qa_outputs"}),
        logits=starts_and_ends,
        labels=span,
        answers=None,
        examples=1,
    ),
}
for unit in (1, 5):  # as fairseq and IDPG: the mean squared error of score / 5
    HEADS[f"numbers by {unit}"] = Oracle(
        *(head(NumberHead, "glue_stsb", {"unit": unit}), "bert", TEXT, LINEAR),
        labels=lambda batch, readout: {"labels": batch.targets / readout.unit},
        answers=lambda logits, batch, readout: (readout.unit * logits[:, 0]).tolist(),
    )
for kind, name in (("deberta", "Deberta"), ("deberta-v2", "DebertaV2")):
    for pooler in ("trainable", "frozen"):  # ContextPooler is dense + GELU; P-tuning v2's too
        dense = "dense" if pooler == "trainable" else "backbone.model.pooler"
        HEADS[f"labels, {kind}, {pooler}"] = Oracle(
            head(LabelHead, "sst2", pooler=pooler),
            *(kind, f"{name}ForSequenceClassification"),
            {dense: "pooler.dense", "linear": "classifier"},
        )
for kind, name in (("bert", "Bert"), ("gpt2", "GPT2"), ("t5", "T5")):
    HEADS[f"tags, {kind}"] = Oracle(
        *(head(TokenHead, "conll03"), kind, f"{name}ForTokenClassification", LINEAR),
        logits=at_reads,
        labels=tag_grid,
        answers=likeliest_tags,
    )


# Words of the pre-trained head.

PATTERN = "{~sentence} film was {mask}."
ONE = {"negative": ["bad"], "positive": ["good"]}
TWO = {"negative": ["bad", "dull"], "positive": ["good", "bright"]}
LONG = {"negative": ["baddull"], "positive": ["goodish"]}
MASKS = {"negative": ["bad"], "positive": ["goods"]}
AT_READS = {"logits": at_reads, "labels": lambda batch, readout: {}}
MLM, CLM, SEQ2SEQ = "BertForMaskedLM", "GPT2LMHeadModel", "T5ForConditionalGeneration"


def words(among="labels", pattern=PATTERN, words=ONE, rule="single", **keys):
    pvp = read_pvp("own", {"pattern": pattern, "words": words, "rule": rule})
    options = VerbalizerReading(among=among, **keys)
    return lambda backbone, data_dir: LabelWords(backbone, sst2(data_dir), pvp, options)


def label_words(*tokens):
    """Return the rules where a label scores the mean of its logits at `(mask, token)`."""

    def scores(logits, batch, readout):
        logits = logits.view(len(batch), -1, logits.shape[-1])
        ids = readout.backbone.tokenizer().convert_tokens_to_ids
        means = [torch.stack([logits[:, m, ids(t)] for m, t in own]).mean(dim=0) for own in tokens]
        return torch.stack(means, dim=1)

    def loss(logits, batch, readout, examples):
        right = torch.tensor([list(ONE).index(e.target) for e in examples])
        table = scores(logits, batch, readout)
        return functional.cross_entropy(table, right, reduction="sum")

    def answers(logits, batch, readout):
        return [list(ONE)[i] for i in scores(logits, batch, readout).argmax(dim=1)]

    return {**AT_READS, "loss": loss, "answers": answers}


def decoder_targets(batch, readout):
    """PPT section 2: [sentinel, word, perhaps another]; they make the decoder's input of it."""
    return {"labels": batch.targets.view(len(batch), -1)}


def of_vocabulary(logits, batch, readout):
    """The word at the answer's place: the last, but for a sentinel behind it."""
    place = -2 if readout.options.closed else -1
    best = logits.view(len(batch), -1, logits.shape[-1])[:, place].argmax(dim=-1)
    written = readout.backbone.tokenizer().convert_ids_to_tokens(best)
    return [{"bad": "negative", "good": "positive"}.get(word, word) for word in written]


SENTINELS = {
    "logits": lambda out, batch, readout: out.logits.flatten(0, 1),
    "labels": decoder_targets,
    "answers": of_vocabulary,
}
WORDS = {
    "words, a mean": Oracle(
        *(words(words=TWO), "bert", MLM),
        **label_words([(0, "bad"), (0, "dull")], [(0, "good"), (0, "bright")]),
    ),
    "words, the first token": Oracle(
        words(words=LONG, rule="first"),
        *("bert", MLM),
        **label_words([(0, "bad")], [(0, "good")]),
    ),
    "words, a mask a token": Oracle(
        words(pattern=PATTERN.replace("mask", "masks"), words=MASKS, rule="mean"),
        *("bert", MLM),
        **label_words([(0, "bad")], [(0, "good"), (1, "##s")]),
    ),
    "words, gpt2": Oracle(
        words(pattern="{~sentence} It was {mask}"),
        *("pocket_gpt2", CLM),
        **label_words([(0, "Ġbad")], [(0, "Ġgood")]),
    ),
    "words, t5": Oracle(words("vocabulary"), "t5", SEQ2SEQ, **SENTINELS),
    "words, t5 closed": Oracle(words("vocabulary", closed=True), "pocket_t5", SEQ2SEQ, **SENTINELS),
    "words, t5 unmarked": Oracle(words("vocabulary", sentinel=False), "t5", SEQ2SEQ, **SENTINELS),
    "words, t5 LM-adapted": Oracle(
        words("vocabulary", "{~sentence} film was"), "t5", SEQ2SEQ, **SENTINELS
    ),
}


# Facts: all words compete in the loss.


def facts(pattern, **keys):
    pvp = read_pvp("own", {"pattern": pattern})
    options = VerbalizerReading(**keys)
    return lambda backbone, rows: FactWords(backbone, task("pocket_facts"), pvp, options)


def right_words(logits, batch, readout):
    """The object where it is likeliest; another word is spelled as in the vocabulary."""
    words = []
    for features, best in zip(batch.features, logits.argmax(dim=-1).tolist(), strict=True):
        (token,) = readout.encoder.spelling.tokens([best])
        inside = readout.encoder.spelling.style != "plain" and not token.startswith(("Ġ", "▁"))
        other = f"##{token}" if inside else token.lstrip("Ġ▁")
        words.append(features.facts["word"] if best == features.targets[0] else other)
    return words


FACTS = {
    f"facts, {name}": Oracle(
        *(facts(pattern, **keys), f"pocket_{kind}", auto),
        loss=cross_entropy,
        answers=right_words,
        **AT_READS,
    )
    for name, kind, auto, pattern, keys in (
        ("bert", "bert", MLM, "{template|fact}", {}),
        ("gpt2", "gpt2", CLM, "{template|fact_start}", {}),
        ("t5", "t5", SEQ2SEQ, "{template|fact}", {}),
        ("t5 unmarked", "t5", SEQ2SEQ, "{template|fact}", {"sentinel": False}),
    )
}


# Candidates: P-tuning's margin of the mean log-probabilities of all their tokens.

LAST = "task.pvps={last: {pattern: '{premise} {question} {masks}'}}"


def copa(backbone, data_dir):
    """A left-to-right backbone reads options at a pattern's end."""
    last = backbone.architecture.left_to_right
    data, named = rows_of("copa", data_dir, *([LAST] * last)), {"pattern": "last"} if last else {}
    return readout_for(backbone, data, {"readout": "verbalizer", **named}, soft=False)


def log_probabilities(logits, batch):
    """Return those of the tokens of each option, a list an example."""
    options = []
    for features, logs in batch.pairs(logits.log_softmax(dim=-1)):
        tokens = features.facts["words"]
        parts = logs.split([len(own) for own in tokens])
        options.append([log[range(len(t)), t] for t, log in zip(tokens, parts, strict=True)])
    return options


def margin(logits, batch, readout, examples):
    total = 0
    for example, logs in zip(examples, log_probabilities(logits, batch), strict=True):
        right, wrong = logs[example.target].mean(), logs[1 - example.target].mean()
        total = total + (1 - right + wrong).clamp(min=0)
    return total


def likeliest_option(logits, batch, readout):
    return [max((0, 1), key=lambda i: logs[i].sum()) for logs in log_probabilities(logits, batch)]


CANDIDATES = {
    f"candidates, {kind}": Oracle(
        *(copa, kind, name),
        loss=margin,
        answers=None if kind == "bert" else likeliest_option,  # masks are filled one by one
        **AT_READS,
    )
    for kind, name in (("bert", MLM), ("gpt2", CLM), ("t5", SEQ2SEQ))
}


# DPT: the class whose word ELECTRA's head finds the most original.


def class_words(direction):
    node = {"pattern": "{~sentence} a plot {words|commas}.", "words": ONE, "rule": "first"}
    pvp = read_pvp("own", node)
    options = ClassWordsReading(direction=direction)
    return lambda backbone, data_dir: ClassWords(backbone, sst2(data_dir), pvp, options)


def class_scores(logits, batch, readout):
    replaced = logits.view(len(batch), -1).sigmoid()
    return replaced if readout.options.direction == "sigma" else 1 - replaced


def originality(logits, batch, readout, examples):
    right = [[float(e.target == label) for label in readout.labels] for e in examples]
    scores = class_scores(logits, batch, readout)
    return functional.binary_cross_entropy(scores, torch.tensor(right), reduction="sum")


def most_original(logits, batch, readout):
    return [readout.labels[i] for i in class_scores(logits, batch, readout).argmax(dim=1)]


CLASS_WORDS = {
    f"class words, {direction}": Oracle(
        *(class_words(direction), "electra", "ElectraForPreTraining"),
        logits=lambda out, batch, readout: at_reads(out, batch, readout)[:, None],
        labels=lambda batch, readout: {},
        loss=originality,
        answers=most_original,
    )
    for direction in ("one_minus_sigma", "sigma")
}
CLASS_WORDS["passage words"] = Oracle(
    lambda backbone, rows: PassageWords(backbone, task("quoref", rows), ClassWordsReading()),
    *("electra", "ElectraForPreTraining"),
    logits=lambda out, batch, readout: at_reads(out, batch, readout)[:, None],
    labels=lambda batch, readout: {},
    loss=lambda logits, batch, *rest: functional.binary_cross_entropy(
        1 - logits[:, 0].sigmoid(), batch.targets.float(), reduction="sum"
    ),
    answers=None,
)


def layer(model, path):
    for name in path.split("."):
        model = getattr(model, name)
    return model


def embeddings(model):
    """Return the word embeddings, apart from an output matrix that is tied to them.

    T5's stay tied to those of its encoder and decoder.
    """
    table = model.get_input_embeddings()
    if model.config.model_type != "t5":
        table.weight = torch.nn.Parameter(table.weight.detach().clone())
    return table.weight.requires_grad_()


ORACLES = {**HEADS, **WORDS, **FACTS, **CANDIDATES, **CLASS_WORDS}


@pytest.mark.parametrize("name", ORACLES)
def test_a_read_out_is_the_library_s(tiny, tiny_folder, data_dir, name):
    oracle = ORACLES[name]
    shipped = oracle.kind.startswith("pocket")
    backbone = pocket(oracle.kind) if shipped else tiny(oracle.kind)
    readout = oracle.make(backbone, data_dir)
    outputs = {"num_labels": fresh(readout).linear.out_features} if oracle.weights else {}
    model = getattr(transformers, oracle.auto).from_pretrained(
        backbone.folder, dtype=torch.float32, **outputs, **oracle.config
    )
    params = [(embeddings(backbone.model), embeddings(model.eval()))]
    for ours, theirs in oracle.weights.items():
        ours, theirs = layer(readout, ours), layer(model, theirs)
        if theirs.bias is None:
            torch.nn.init.zeros_(ours.bias)
        theirs.load_state_dict(ours.state_dict(), strict=theirs.bias is not None)
        params += [(ours.weight, theirs.weight)] * ours.weight.requires_grad

    examples = readout.answerable(readout.task.load("train")[:60])[: oracle.examples]
    batch, output = read(readout, examples)
    logits = readout.scores(output, batch) if isinstance(readout, Head) else output.logits
    loss = readout.loss(output, batch) / len(batch.targets)

    padding = model.config.pad_token_id or 0
    inputs = {"input_ids": batch.ids.masked_fill(~batch.mask, padding)}
    inputs["attention_mask"] = batch.mask.long()
    if batch.types is not None:
        inputs["token_type_ids"] = batch.types
    if batch.decoder is not None and oracle.labels is not decoder_targets:
        inputs["decoder_input_ids"] = batch.decoder
    if "Choice" in oracle.auto:
        inputs = {key: ids.view(len(examples), 4, -1) for key, ids in inputs.items()}
    out = model(**inputs, **oracle.labels(batch, readout))
    expected = oracle.logits(out, batch, readout)
    by_hand = oracle.loss and oracle.loss(expected, batch, readout, examples) / len(batch.targets)
    expected_loss = out.loss if oracle.loss is None else by_hand

    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(loss, expected_loss, atol=1e-5, rtol=1e-5)
    gradients = torch.autograd.grad(loss, [ours for ours, _ in params])
    theirs = torch.autograd.grad(expected_loss, [theirs for _, theirs in params])
    torch.testing.assert_close(gradients, theirs, atol=1e-5, rtol=1e-4)
    if oracle.answers is not None:
        answers = [prediction.value for prediction in readout.decode(output, batch)]
        expected_answers = oracle.answers(expected, batch, readout)
        if isinstance(answers[0], float):
            expected_answers = pytest.approx(expected_answers)
        assert answers == expected_answers
