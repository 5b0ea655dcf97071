"""WSC by filling: right noun phrases teach, the surest mask is filled first, words are compared."""

import random

import pytest
import torch

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning import PTuning
from ptrun.runs.examples import divide, usable
from ptrun.types import Split
from tests.facts import rows_of
from tests.readings import reading
from tests.readout.reading import task
from tests.small_runs import engine


@pytest.fixture
def method(tiny, data_dir):
    torch.manual_seed(0)
    return PTuning(tiny(), rows_of("wsc", data_dir))


def test_right_noun_phrases_alone_teach(method):
    data = method.task
    split = Split(data.load("train"), data.load("dev"), data.load("test"), {})
    (part,) = divide(method, split)
    kept = part.split
    assert [e.target for e in kept.train] == ["same"] * 3 and len(split.train) == 6
    assert kept.dev == split.dev and kept.test == split.test
    right = [e for e in split.train if e.target == "same"]
    assert divide(method, Split(right, [], split.test, {}))[0].split.train == right  # FewGLUE's


def test_one_mask_more_than_tokens_learns_padding(method):
    (features,) = method.encode(method.task.load("train")[:1])
    tokenizer = method.backbone.tokenizer()
    words = tokenizer("The lamp", add_special_tokens=False).input_ids
    assert features.targets == [*words, tokenizer.pad_token_id]
    (row,) = features.rows
    assert [row.ids[at] for at in row.reads] == [tokenizer.mask_token_id] * (len(words) + 1)


def test_random_masks_are_those_that_the_released_code_draws(tiny, data_dir):
    """Its WscPVP has one generator, and reads the training examples twice: to score, to train."""
    made = PTuning(tiny(), rows_of("wsc", data_dir), reading("verbalizer", random_masks=True))
    data = made.task
    taught = usable(made, Split(data.load("train") * 2, [], data.load("test"), {})).train
    rng = random.Random(42)
    scored, drawn = ([rng.randint(0, 3) for _ in taught] for _ in range(2))
    assert scored != drawn and set(drawn) != {1}
    pad = made.backbone.tokenizer().pad_token_id
    for f, plain, extra in zip(
        made.encode(taught), with_one_more(made, taught), drawn, strict=True
    ):
        assert f.targets == [*plain.targets[:-1], *[pad] * extra]
        assert len(f.rows[0].reads) == len(f.targets)
    test = data.load("test")
    assert made.encode(test) == with_one_more(made, test), "one more in evaluation"


def with_one_more(made, examples):
    """Return features with one mask more than tokens."""
    by_id = {e.id: e for part in ("train", "test") for e in made.task.load(part)}
    return PTuning(made.backbone, made.task).encode([by_id[e.id] for e in examples])


@torch.no_grad()
def by_hand(method, features):
    """Return the tokens that a loop of its own fills in, the surest first."""
    (row,) = features.rows
    ids, left = list(row.ids), list(row.reads)
    while left:
        text = method.backbone.embed(torch.tensor([ids]))
        text[0, row.softs] = method.prompt()
        logits = method.backbone.model(inputs_embeds=text).logits[0]
        chances, words = logits.softmax(-1).max(-1)
        at = max(left, key=lambda place: float(chances[place]))
        ids[at] = int(words[at])
        left.remove(at)
    return [ids[at] for at in row.reads]


def test_the_surest_mask_is_filled_first_as_a_loop_by_hand_does(method, monkeypatch):
    features = method.encode(method.task.load("test"))
    named = []
    answer = method.readout.judged
    monkeypatch.setattr(
        method.readout, "judged", lambda own, noun: named.append((noun, own)) or answer(own, noun)
    )
    engine(method.backbone, 10_000).predict([method], [features])
    expected = [(f.facts["noun"], by_hand(method, f)) for f in features]
    assert sorted(named) == sorted(expected)


@pytest.mark.parametrize(
    ("said", "noun", "answer"),
    [
        ("the film", "The film", "same"),
        ("film", "the good film", "same"),  # found words are in the noun phrase
        ("the good film", "film", "same"),  # or the other way round
        ("film .", "film", "same"),  # letters alone count
        ("the plot", "the film", "different"),
        ("[PAD]", "the film", "same"),  # no word is in any, as in the released code
    ],
)
def test_words_found_are_in_the_noun_phrase_or_the_other_way_round(method, said, noun, answer):
    tokenizer = method.backbone.tokenizer()
    ids = tokenizer.convert_tokens_to_ids(said.split())
    assert tokenizer.unk_token_id not in ids
    assert method.readout.judged(ids, noun) == answer


# Answers found in rounds: masks filled one by one, whoever shares the passes.


def made_by(backbone, data, **keys):
    return ManualPrompt(backbone, data, reading("verbalizer", **keys))


def test_choices_are_spelled_as_the_pattern_lists_them(tiny, data_dir):
    """COPA, P-tuning section 2b: no full stop at the end, a small first letter."""
    data = task("copa", data_dir)
    reads = made_by(tiny(), data, pattern="pet").readout
    words = reads.encode(data.load("train")[:1], 64)[0].facts["words"][0]
    assert reads.backbone.tokenizer().decode(words) == "the wind blew"
