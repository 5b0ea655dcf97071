"""Answers found in rounds: masks filled one by one, whoever shares the passes."""

import pytest
import torch

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.readout.verbalizer import Candidates, Fill
from tests.readings import reading
from tests.readout.reading import answers, pocket, read, renamed, task


def method(backbone, data, **keys):
    return ManualPrompt(backbone, data, reading("verbalizer", **keys))


def one_by_one(model, ids, types, masks, pick):
    """Fill masks in the library's own model; `pick` says from log-probabilities which, and how."""
    ids, masks, total, found = list(ids), list(masks), 0.0, {}
    while masks:
        with torch.no_grad():
            given = {"token_type_ids": torch.tensor([types])} if types else {}
            logits = model(input_ids=torch.tensor([ids]), **given).logits[0]
        logs = logits.log_softmax(dim=-1)
        place, word = pick(logs, masks)
        total += float(logs[place, word])
        ids[place] = found[place] = word
        masks.remove(place)
    return total, [found[place] for place in sorted(found)]


def masked_model(tiny_folder):
    from transformers import BertForMaskedLM

    return BertForMaskedLM.from_pretrained(tiny_folder("bert")).eval()


def test_the_likeliest_right_token_is_filled_first(tiny, tiny_folder, data_dir):
    """PET's way of scoring a choice, with the library's model, one row at a time."""
    data, backbone = task("copa", data_dir), tiny()
    chosen = method(backbone, data, pattern="pet")
    examples, model = data.load("train"), masked_model(tiny_folder)
    wanted = []
    for features in chosen.encode(examples):
        scores = []
        for row, words in zip(features.rows, features.facts["words"], strict=True):
            gold = dict(zip(row.reads, words, strict=True))

            def pick(logs, masks, gold=gold):
                place = max(masks, key=lambda m: float(logs[m, gold[m]]))
                return place, gold[place]

            total, found = one_by_one(model, row.ids, row.types, row.reads, pick)
            assert found == words
            scores.append(total)
        wanted.append(scores.index(max(scores)))
    assert isinstance(chosen.readout, Candidates)
    assert answers(backbone, [chosen], [chosen.encode(examples)], 1000) == [wanted]


def test_the_surest_mask_is_filled_first(tiny, tiny_folder, data_dir, monkeypatch):
    data, backbone = task("wsc", data_dir), tiny()
    chosen = method(backbone, data, pattern="pet")
    examples, model = data.load("train"), masked_model(tiny_folder)
    assert isinstance(chosen.readout, Fill)
    monkeypatch.setattr(Fill, "judged", lambda self, named, noun: named)

    def pick(logs, masks):
        place = max(masks, key=lambda m: float(logs[m].max()))
        return place, int(logs[place].argmax())

    rows = [features.rows[0] for features in chosen.encode(examples)]
    wanted = [one_by_one(model, row.ids, row.types, row.reads, pick)[1] for row in rows]
    assert answers(backbone, [chosen], [chosen.encode(examples)], 1000) == [wanted]


def test_naming_the_noun_phrase_answers_same(tiny, data_dir):
    reads = method(tiny(), task("wsc", data_dir), pattern="pet").readout
    noun = reads.backbone.tokenizer()("the film good", add_special_tokens=False)["input_ids"]
    pad = reads.backbone.tokenizer().pad_token_id
    assert reads.judged([*noun, pad], "The film") == "same"
    assert reads.judged(noun[:1], "The film") == "same"
    assert reads.judged([noun[2]], "The film") == "different"
    assert reads.judged([pad, pad], "The film") == "same"  # as the released code has it


def test_only_right_noun_phrases_have_loss_terms(tiny, data_dir):
    data = task("wsc", data_dir)
    reads, examples = method(tiny(), data, pattern="pet").readout, data.load("train")
    wrong = [e for e in examples if e.target == "different"]
    right = [e for e in examples if e.target == "same"]
    losses = []
    for own in (examples, right, wrong):
        batch, output = read(reads, own)
        losses.append(float(reads.loss(output, batch)))
    assert abs(losses[0] - losses[1]) < 1e-4 and losses[1] > 0 and losses[2] == 0
    tokens = reads.backbone.tokenizer()
    features = reads.encode(right[:1], 64)[0]
    noun = tokens(right[0].fields["span1_text"], add_special_tokens=False)["input_ids"]
    assert features.targets == [*noun, tokens.pad_token_id]


CELLS = [("bert", "copa", "pet"), ("bert", "wsc", "pet")]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "pattern"), CELLS)
def test_batches_order_and_company_change_no_answer(
    tiny, data_dir, monkeypatch, kind, name, pattern
):
    """Examples need different numbers of rounds; a second member shares every pass."""
    monkeypatch.setattr(Fill, "judged", lambda self, named, noun: str(named))
    data, backbone = task(name, data_dir), tiny(kind)
    one, two = (method(backbone, data, pattern=pattern) for _ in range(2))
    examples = renamed(data.load("train"), 12)
    features = one.encode(examples)
    counts = {len(row.reads) for f in features for row in f.rows}
    whole = answers(backbone, [one], [features], 10_000)[0]
    assert len(counts) > 1 and len(set(whole)) > 1
    assert answers(backbone, [one], [features[::-1]], 1)[0] == whole[::-1]
    shared = answers(backbone, [one, two], [features, features[3:][::-1]], 300)
    assert shared == [whole, whole[3:][::-1]]


@pytest.mark.parametrize("objective", ["margin", "softmax"])
def test_the_objective_compares_mean_cross_entropies(tiny, data_dir, objective):
    data = task("copa", data_dir)
    reads = method(tiny(), data, pattern="pet", objective=objective).readout
    examples = data.load("train")
    batch, output = read(reads, examples)
    wanted, at = 0.0, 0
    for example, features in zip(examples, batch.features, strict=True):
        costs = []
        for words in features.facts["words"]:
            logits = output.logits[at : at + len(words)]
            at += len(words)
            costs.append(torch.nn.functional.cross_entropy(logits, torch.tensor(words)))
        right, wrong = costs[example.target], costs[1 - example.target]
        margin = (1 + right - wrong).clamp(min=0)
        softmax = -torch.stack([-right, -wrong]).log_softmax(0)[0]
        wanted += float(margin if objective == "margin" else softmax)
    assert abs(float(reads.loss(output, batch)) - wanted) < 1e-4


def test_choices_are_spelled_as_the_pattern_lists_them(tiny, data_dir):
    """COPA, P-tuning section 2b: no full stop at the end, a small first letter."""
    data = task("copa", data_dir)
    reads = method(tiny(), data, pattern="pet").readout
    words = reads.encode(data.load("train")[:1], 64)[0].facts["words"][0]
    assert reads.backbone.tokenizer().decode(words) == "the wind blew"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pocket_gpt2", "pocket_t5"])
def test_texts_are_scored_in_one_pass_where_words_follow_each_other(name):
    """Each token after those before it: the library's loss of the answer as labels."""
    import transformers

    backbone, data = pocket(name), task("pocket_choice")
    chosen = method(backbone, data, pattern="texts")
    library = {"pocket_gpt2": "GPT2LMHeadModel", "pocket_t5": "T5ForConditionalGeneration"}[name]
    model = getattr(transformers, library).from_pretrained(backbone.folder, dtype=torch.float32)
    examples = data.load("train")[:3]
    wanted = []
    for features in chosen.encode(examples):
        losses = []
        for row, words in zip(features.rows, features.facts["words"], strict=True):
            if row.decoder is None:
                ids = [*row.ids, words[-1]]
                labels = [-100] * (len(ids) - len(words)) + words
            else:
                ids, labels = row.ids, [*row.decoder[1:2], *words]
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).logits
            own = logits[0, -1 - len(words) : -1] if row.decoder is None else logits[0, 1:]
            words_there = torch.tensor(words)
            loss = torch.nn.functional.cross_entropy(own, words_there, reduction="sum")
            losses.append(float(loss))
        wanted.append(losses.index(min(losses)))
    assert answers(backbone, [chosen], [chosen.encode(examples)], 2000) == [wanted]
