"""Where prompts begin: vectors by hand, on every family, and nothing else moves."""

from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.start.spec import parse
from ptrun.start.start import begin
from tests.method.test_prompt_tuning import OTHER, hybrid, pocket
from tests.readings import reading
from tests.small_runs import sst2

KINDS = ["bert", "albert", "gpt2", "t5"]


def started(method, start, seed=1):
    """Begin a method's prompt; return its finished vectors."""
    task = method.task

    def rows(method, _part):
        return [f for part in ("train", "dev") for f in method.encode(task.load(part))]

    begin(parse(start), {"": method}, {}, seed, rows, {})
    return method.exported()["prompt.table"]


def soft(backbone, data_dir, **keys):
    return PromptTuning(backbone, sst2(data_dir), **{"length": 7, **keys})


def embedded(backbone, words):
    ids = backbone.tokenizer().convert_tokens_to_ids(words)
    assert backbone.tokenizer().unk_token_id not in ids
    return backbone.embed(torch.tensor(ids))


def rows_of(backbone, vectors):
    table = backbone.model.get_input_embeddings().weight
    return torch.cdist(vectors, table).argmin(dim=1).tolist(), table


@pytest.mark.parametrize(
    ("length", "rescale", "words"),
    [
        (7, 1.0, "good film the good film the good"),
        (7, 100.0, "good film the good film the good"),
        (2, 1.0, "good film"),
    ],
    ids=["in turn", "rescaled", "cut"],
)
def test_a_text_is_embedded_in_turn(tiny, data_dir, length, rescale, words):
    backbone = tiny()
    vectors = started(
        soft(backbone, data_dir, length=length, rescale=rescale), "text:good film the"
    )
    expected = embedded(backbone, words.split())
    torch.testing.assert_close(vectors, expected, atol=0 if rescale == 1 else 1e-7, rtol=0)


def test_labels_are_the_verbalizers_words_in_turn(tiny, data_dir):
    backbone = tiny()
    vectors = started(hybrid(backbone, sst2(data_dir, OTHER)), "labels")
    assert torch.equal(vectors, embedded(backbone, ["bad", "good", "bad", "good", "bad"]))


def test_labels_are_the_names_of_labels_where_a_head_answers(tiny, data_dir):
    backbone = tiny()
    task = sst2(data_dir, OTHER)
    task.labels = ["good_film", "dull"]
    vectors = started(PromptTuning(backbone, task, length=4), "labels")
    assert torch.equal(vectors, embedded(backbone, ["good", "film", "dull", "good"]))


def test_the_plain_vectors_of_ptuning_begin_as_words(tiny, data_dir):
    backbone = tiny()
    task = sst2(data_dir, "{~sentence} {soft:2} was {soft} {mask}")
    method = PTuning(backbone, task, reading("verbalizer"), encoder="plain")
    begin(parse("text:the plot"), {"": method}, {}, 1, lambda *_: [], {})
    expected = embedded(backbone, ["the", "plot", "the"])
    assert torch.equal(method.exported()["prompt.vectors"], expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["vocabulary", "top_1000", "task_words"])
def test_drawn_words_are_embeddings_that_the_seed_decides(tiny, data_dir, kind, start):
    backbone = tiny(kind)
    draw = partial(started, start=start)
    vectors = draw(soft(backbone, data_dir))
    found, table = rows_of(backbone, vectors)
    assert torch.equal(vectors, table[found]) and len(set(found)) == 7
    assert torch.equal(draw(soft(backbone, data_dir)), vectors)
    assert not torch.equal(draw(soft(backbone, data_dir), seed=2), vectors)


def test_top_1000_takes_the_first_ids_and_the_vocabulary_all(data_dir):
    backbone = pocket("t5")
    size = len(backbone.tokenizer())
    assert size > 1100
    found = {}
    for start in ("top_1000", "vocabulary"):
        found[start], _ = rows_of(backbone, started(soft(backbone, data_dir, length=400), start))
        assert len(set(found[start])) == 400
    assert max(found["top_1000"]) < 1000
    beyond = sum(i >= 1000 for i in found["vocabulary"]) / 400
    assert beyond == pytest.approx((size - 1000) / size, abs=0.1)


def test_task_words_are_the_commonest_tokens_of_train_and_dev(tiny, data_dir):
    backbone = tiny()
    method = soft(backbone, data_dir, length=3)
    tokenizer = backbone.tokenizer()
    texts = [e.fields["sentence"] for part in ("train", "dev") for e in method.task.load(part)]
    counts = {}
    for text in texts:
        for id_ in tokenizer(text, add_special_tokens=False)["input_ids"]:
            counts[id_] = counts.get(id_, 0) + 1
    counts.pop(tokenizer.unk_token_id, None)
    ranked = sorted(counts, key=lambda i: (-counts[i], i))
    found, _ = rows_of(backbone, started(method, "task_words"))
    assert set(found) == set(ranked[:3])


def test_random_vectors_have_their_sizes(tiny, data_dir):
    backbone = tiny()
    make = partial(soft, backbone, data_dir, length=50, rescale=100.0)
    assert float(started(make(), "normal").std()) == pytest.approx(0.02, rel=0.1)
    assert float(started(make(), "normal:2").std()) == pytest.approx(2, rel=0.1)
    bounded = started(make(), "uniform")
    assert float(bounded.abs().max()) == pytest.approx(0.5, rel=0.02)
    assert float(bounded.std()) == pytest.approx(0.5 / 3**0.5, rel=0.05)
    same = started(make(), "identical")
    assert torch.equal(same, same[:1].expand(50, -1))
    assert float(same[0].std()) == pytest.approx(0.1, rel=0.5) and float(same[0].abs().min()) > 0
    small = started(make(), "identical:0.001")
    torch.testing.assert_close(small, same / 100)
    assert not started(make(), "zero").any()


@pytest.mark.parametrize("frozen", [0, 2])
def test_a_table_of_keys_and_values_starts_from_numbers_too(tiny, data_dir, frozen):
    """PEFT's prefixes start from N(0, 1) or from zeros; vectors that are not learned do as well."""
    method = PTuningV2(tiny(), sst2(data_dir), length=40, frozen_vectors=frozen)
    no_rows = lambda method, part: []  # noqa: E731
    begin(parse("normal:1"), {"": method}, {}, 1, no_rows, {})
    assert float(method.prompt().detach().std()) == pytest.approx(1, rel=0.05)
    assert float(method.prompt().detach()[:frozen].abs().sum()) > 0 or not frozen
    begin(parse("zero"), {"": method}, {}, 1, no_rows, {})
    assert not method.prompt().any()


def test_a_random_start_is_the_methods_own_and_nothing_else_ever_moves(tiny, data_dir):
    backbone = tiny()
    method = soft(backbone, data_dir)
    before = {name: p.detach().clone() for name, p in method.learned().items()}
    weights = {name: p.clone() for name, p in backbone.model.named_parameters()}
    started(method, None)
    assert all(torch.equal(p, before[name]) for name, p in method.learned().items())
    started(method, "vocabulary")
    moved = [name for name, p in method.learned().items() if not torch.equal(p, before[name])]
    assert moved == ["prompt.table"] and method.prompt.table.requires_grad
    assert all(torch.equal(p, weights[n]) for n, p in backbone.model.named_parameters())


def test_labels_that_are_not_there_are_refused(tiny, data_dir):
    method = soft(tiny(), data_dir)
    method.task.labels = []
    with pytest.raises(UserError, match="start=labels: found no words; use start=vocabulary"):
        started(method, "labels")
