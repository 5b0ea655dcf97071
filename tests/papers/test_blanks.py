"""Candidates of a blank infiller: each is written out and ended, and learned as it is scored."""

import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from ptrun.errors import UserError
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.readout.base import Features
from ptrun.readout.verbalizer import Written
from ptrun.runs.examples import divide
from ptrun.types import Split
from tests.facts import rows_of
from tests.families import PaperBackbone
from tests.papers import glm_reference
from tests.readings import reading
from tests.readout.reading import loss_and_answers, read
from tests.small_runs import engine

TEXT = "task.pvps={one: {pattern: '{premise} {masks}.'}}"
START, END = 261, 262  # of what is written in a blank


def copa(tiny, data_dir, **keys):
    """Return a method on COPA's rows, whose options are not written in the text."""
    own = reading("verbalizer", pattern="one", **keys)
    return ManualPrompt(tiny("blocklm"), rows_of("copa", data_dir, TEXT), own)


def by_hand(model, text, blank, words):
    """Return the log-probability of each word written in a blank, one forward pass a word.

    No cache, no batch: the text sees itself, what is written also what stands before it there.
    """
    logs, decoder = [], [START]
    for word in words:
        size, more = len(text), len(decoder)
        places = torch.tensor([[*range(size), *[blank] * more]])
        inside = torch.tensor([[0] * size + list(range(1, more + 1))])
        seen = torch.ones(size + more, size + more).tril().bool()
        seen[:, :size] = True
        ids = torch.tensor([[*text, *decoder]])
        states = model.hidden(
            model.get_input_embeddings()(ids), places, inside, attention_mask=seen[None, None]
        )
        logits = model.lm_head(states.last_hidden_state[0, -1])
        logs.append(logits.log_softmax(-1)[word])
        decoder.append(word)
    return torch.stack(logs)


@pytest.fixture
def written(tiny_folder):
    """Return the log-probabilities of each option's tokens, by the model as it was saved."""
    from ptrun.papers.models import BlockLM

    model = BlockLM.from_pretrained(tiny_folder("blocklm")).eval()

    @torch.no_grad()
    def logs(method, example):
        row = method.readout.row(method.readout.pieces(example), 64)
        return [by_hand(model, row.ids, row.ids.index(4), own) for own in words_of(method, example)]

    return logs


def words_of(method, example):
    """Return the tokens of each option, the end among them."""
    tokenizer = method.backbone.tokenizer()
    spelt = [tokenizer(f" {o}", add_special_tokens=False) for o in example.fields["options"]]
    return [[*own["input_ids"], END] for own in spelt]


def test_a_row_is_the_text_and_beside_it_the_option_that_is_ended(tiny, data_dir):
    method = copa(tiny, data_dir)
    example = method.task.load("test")[0]
    (features,) = method.encode([example])
    words = words_of(method, example)
    assert features.facts["words"] == words
    for row, own in zip(features.rows, words, strict=True):
        assert row.decoder == [START, *own[:-1]] and row.reads == list(range(len(own)))
        assert row.types.index(1) == row.ids.index(4) and sum(row.types) == 1  # at <mask>


def test_log_probabilities_are_those_of_writing_one_token_after_the_other(tiny, data_dir, written):
    method = copa(tiny, data_dir)
    examples = method.task.load("test")[:2]
    with torch.no_grad():
        batch, output = read(method.readout, examples)
        ours = method.readout._log_probabilities(output, batch)
    theirs = [log for example in examples for log in written(method, example)]
    torch.testing.assert_close(ours, torch.cat(theirs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scored", ["sum", "mean"])
def test_what_is_learned_is_cross_entropy_over_the_scores_that_answer(
    tiny, data_dir, written, scored
):
    method = copa(tiny, data_dir, objective="as_scored", scored=scored)
    examples = method.task.load("test")[:3]
    loss, answers = loss_and_answers(method.readout, examples)
    scores = [[getattr(log, scored)() for log in written(method, e)] for e in examples]
    table, right = torch.tensor(scores), torch.tensor([e.target for e in examples])
    assert loss == pytest.approx(float(functional.cross_entropy(table, right)), abs=1e-4)
    assert answers == table.argmax(dim=1).tolist()


@pytest.mark.parametrize(
    ("objective", "scored", "gap"),
    [("as_scored", "sum", 3 - 4), ("as_scored", "mean", 1 - 4 / 2), ("softmax", "sum", 1 - 4 / 2)],
)
def test_the_objective_in_closed_form(tiny, data_dir, objective, scored, gap):
    """Three tokens at -1 each are right, two at -2 each are wrong; softmax is over means."""
    own = copa(tiny, data_dir, objective=objective, scored=scored).readout
    features = Features("a", [], [0], {"right": [0], "words": [[1, 2, 3], [4, 5]], "sizes": [3, 2]})
    logs = torch.tensor([-1.0, -1.0, -1.0, -2.0, -2.0])
    own._log_probabilities = lambda output, batch: logs
    batch = SimpleNamespace(features=[features], pairs=lambda numbers: [(features, numbers)])
    assert float(own.loss(None, batch)) == pytest.approx(math.log1p(math.exp(gap)), abs=1e-6)


def unmarked(content):
    if "added_tokens" in content:
        kept = [token for token in content["added_tokens"] if "piece" not in token["content"]]
        return {**content, "added_tokens": kept}
    return {key: own for key, own in content.items() if key != "decoder_start_token_id"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("config", "config.json has no decoder_start_token_id"),
        ("tokenizer", r"tokenizer lacks a mask token, <\|startofpiece\|>"),
    ],
)
def test_a_folder_that_lacks_the_marks_of_an_answer_is_refused(
    tiny_folder, tmp_path, data_dir, name, said
):
    folder = shutil.copytree(tiny_folder("blocklm"), tmp_path / "stripped")
    file = folder / f"{name}.json"
    file.write_text(json.dumps(unmarked(json.loads(file.read_text()))))
    backbone = PaperBackbone(name="stripped", path=str(folder), dtype="fp32")
    asked = reading("verbalizer", pattern="one")
    method = ManualPrompt(backbone, rows_of("copa", data_dir, TEXT), asked)
    with pytest.raises(UserError, match=said):
        method.encode(method.task.load("dev"))


# WSC by writing: right noun phrases teach, what is written greedily is compared.


LONGEST = 16
MARKED = "task.pvps={one: {pattern: '{text} *{span2_text}* {mask}.'}}"


@pytest.fixture
def method(tiny, data_dir):
    own = reading("verbalizer", pattern="one")
    return ManualPrompt(tiny("blocklm"), rows_of("wsc", data_dir, MARKED), own)


def test_the_phrase_and_its_end_are_learned_and_shown_in_training_alone(method):
    assert isinstance(method.readout, Written)
    data = method.task
    split = Split(data.load("train"), data.load("dev"), data.load("test"), {})
    (part,) = divide(method, split)
    words = method.readout.encoder.spelling.answer("The lamp")
    (taught,) = method.encode(part.split.train[:1])
    assert taught.targets == [*words, END]
    assert taught.rows[0].decoder == [START, *words]
    assert taught.rows[0].reads == list(range(len(words) + 1))
    for features in method.encode(split.train):
        assert features.targets == [] and features.rows[0].decoder == [START]


def test_the_loss_is_cross_entropy_over_what_is_written(method):
    data = method.task
    split = Split(data.load("train"), data.load("dev"), data.load("test"), {})
    (part,) = divide(method, split)
    features = method.encode(part.split.train)
    batch = engine(method.backbone)._collate(features)
    with torch.no_grad():
        found = method.loss(method.backbone.forward(method.inputs(batch)), batch)
        wanted = sum(plainly(method, f.rows[0], f.targets) for f in features)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


def logits(method, row, written):
    """Return the plain reference's logits of a row's text and what is written in its blank."""
    state = glm_reference.original(dict(method.backbone.model.named_parameters()))
    sep, more = len(row.ids), len(written)
    places = torch.tensor([*range(sep), *[row.types.index(1)] * more])
    inside = torch.tensor([0] * sep + list(range(1, more + 1)))
    return glm_reference.logits(state, torch.tensor(row.ids + written), places, inside, sep, 2)


def plainly(method, row, targets):
    logs = logits(method, row, row.decoder)[len(row.ids) :].log_softmax(dim=-1)
    return -sum(own[target] for own, target in zip(logs, targets, strict=True))


@torch.no_grad()
def greedy(method, row):
    written = [START]
    while len(written) <= LONGEST:
        word = int(logits(method, row, written)[-1].argmax())
        if word == END:
            break
        written.append(word)
    return written[1:]


@pytest.mark.parametrize("budget", [60, 10_000])
def test_what_is_written_is_greedy_whoever_shares_the_passes(method, monkeypatch, budget):
    features = method.encode(method.task.load("test"))
    named = {}
    answer = method.readout.judged
    judged = lambda own, noun: named.setdefault(tuple(own), noun) and answer(own, noun)  # noqa: E731
    monkeypatch.setattr(method.readout, "judged", judged)
    with torch.no_grad():  # so that some phrases end by themselves
        method.backbone.model.transformer.wte.weight[END] *= -3
    (answers,) = engine(method.backbone, budget).predict([method], [features])
    wanted = [greedy(method, f.rows[0]) for f in features]
    assert {tuple(own) for own in wanted} == set(named)
    assert [a.value for a in answers] == [
        answer(own, f.facts["noun"]) for own, f in zip(wanted, features, strict=True)
    ]
    assert {len(own) for own in wanted} != {LONGEST}
