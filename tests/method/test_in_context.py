"""`method=in_context`: demonstrations of train before each row, and nothing learned."""

import json
from collections import Counter

import pytest
import torch

import ptrun
from ptrun.errors import UserError
from ptrun.method.in_context import InContext
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.predicting.answering import ready
from ptrun.predicting.together import Together
from ptrun.runs.examples import usable
from ptrun.task.own import Own
from ptrun.task.setting import shots
from ptrun.testing import read
from ptrun.types import Split
from tests.exporting.runs import shipped
from tests.facts import task as task_of
from tests.readings import reading
from tests.readout.test_writing import told
from tests.small_runs import engine, sst2

ROWS = "+task.source.rows={train: 24, validation: 6, test: 6}"
WRITES = ["task=pocket_writing", "readout.max_new_tokens=12"]
LINES = {
    "masked": ["backbone=pocket_bert", "task=pocket_sentiment"],
    "pairs": ["backbone=pocket_bert", "task=pocket_pairs"],
    "causal": ["backbone=pocket_gpt2", "task=pocket_sentiment"],
    "seq2seq": ["backbone=pocket_t5", "task=pocket_sentiment"],
    "infilling": ["backbone=pocket_glm", "task=pocket_sentiment"],
    "several": ["backbone=pocket_bert", "task=pocket_two_topics"],
    "options": ["backbone=pocket_gpt2", "task=pocket_choice"],
    "facts": ["backbone=pocket_bert", "task=pocket_facts"],
    "texts": ["backbone=pocket_gpt2", *WRITES],
    "texts of T5": ["backbone=pocket_t5", *WRITES],
}


def made(*line, examples=3, seed=1):
    """Return a method as a run has it before its first pass."""
    torch.manual_seed(seed)
    method, *_ = read("method=in_context", f"method.examples={examples}", ROWS, *line)
    train, dev, test = (method.task.load(part) for part in ("train", "dev", "test"))
    usable(method, Split(train, dev, test, {}))
    return method


@pytest.mark.parametrize("line", LINES.values(), ids=list(LINES))
def test_without_examples_it_is_the_manual_prompt(line):
    own = read("method=in_context", "method.examples=0", *line)
    manual = read("method=manual_prompt", *line)
    assert own[1].rows == manual[1].rows
    assert torch.equal(own[2].logits, manual[2].logits)
    made(*line, examples=0)


@pytest.mark.parametrize("line", LINES.values(), ids=list(LINES))
def test_demonstrations_are_of_train_and_have_their_answers(line):
    count = 1 if "task=pocket_choice" in line else 2  # as many as fit
    method = made(*line, examples=count)
    bare = read("method=manual_prompt", ROWS, *line)[0]
    train = {example.id: example for example in method.task.load("train")}
    others = [*method.task.load("dev"), *method.task.load("test")]
    ids, texts = method.record["demonstrations"], method.record["texts_before"]
    assert len({*ids}) == count and {*ids} <= train.keys() - {example.id for example in others}
    # the row is that of the manual prompt, with these tokens before its text
    (row,), (plain,) = (own.encode(others[:1])[0].rows for own in (method, bare))
    before = [i for text in texts for i in text]
    start = len(method.readout.encoder._frames[0].ids[0])
    assert row.ids == plain.ids[:start] + before + plain.ids[start:]
    assert row.decoder == plain.decoder
    assert row.reads == [place + len(before) * (not row.decoder) for place in plain.reads]
    # each has the fields of its example, and its answer
    tokenizer, pvp = method.backbone.tokenizer(), method.readout.pvp
    for text, name in zip(texts, ids, strict=True):
        shown = "".join(tokenizer.decode(text).split())
        target, fields = train[name].target, train[name].fields
        for field in {*pvp.pattern.fields} & {"sentence", "premise", "facts", "text", "sub_label"}:
            assert "".join(fields[field].split())[:20] in shown
        if method.task.answer == "text":
            assert shown.endswith("".join(target[0].split()))
        if method.task.answer == "label":
            tokens = method.readout.tokens
            assert tokens.ids[tokens.labels.index(target)][0][0] in text


def test_the_tokens_are_those_of_the_whole_text(tiny):
    """As the tokenizer reads an example, its answer and a blank line, written in one text."""
    backbone, task = tiny("gpt2"), told()
    method = InContext(backbone, task, reading("writing", max_new_tokens=8), examples=3)
    method.prime(task.load("train"))
    train = {own.id: own for own in task.load("train")}
    for name, ids in zip(*method.record.values(), strict=True):
        text = f"{train[name].fields['facts']} {train[name].target[0]}\n\n"
        assert ids == backbone.tokenizer()(text, add_special_tokens=False).input_ids


def test_a_written_demonstration_is_a_learned_row_without_its_end():
    line = ["backbone=pocket_gpt2", "task=pocket_writing"]
    method, learned = made(*line), read("method=lora", ROWS, *line)[0]
    train = {own.id: own for own in method.task.load("train")}
    line_end = method.backbone.tokenizer()("a\n\n").input_ids[1:]
    for name, text in zip(*method.record.values(), strict=True):
        assert text == learned.encode([train[name]])[0].rows[0].ids + line_end


def test_a_pair_after_demonstrations_keeps_its_segments(tiny, data_dir):
    """[CLS] demonstrations, first text [SEP] second text [SEP]: segment 1 is the second text."""
    task, own = sst2(data_dir, "{~sentence} || the film was {mask}."), reading("verbalizer")
    backbone = tiny("bert")
    backbone.tokenizer().model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    method, bare = InContext(backbone, task, own, examples=2), ManualPrompt(backbone, task, own)
    method.prime(task.load("train"))
    for example in task.load("test"):
        (row,), (plain,) = (m.encode([example])[0].rows for m in (method, bare))
        added = len(row.ids) - len(plain.ids)
        assert added == sum(map(len, method.record["texts_before"]))
        assert row.types == [0] * added + plain.types and 1 in row.types
    batch = engine(backbone)._collate(method.encode(task.load("test")))
    assert len(method.decode(backbone.forward(method.inputs(batch)), batch)) == 6


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{~sentence} || {mask} was the plot.", "{} [SEP] {} was the plot . [SEP]"),
        ("{mask} was the plot. || {~sentence}", "{1} was the plot . [SEP] {0} [SEP]"),
        ("{~sentence} || the plot was {mask}", "{} [SEP] the plot was {} [SEP]"),
    ],
)
def test_the_answer_is_in_the_text_of_its_gap(pattern, words, tiny, data_dir):
    task = sst2(data_dir, pattern)
    method = InContext(tiny("bert"), task, reading("verbalizer"), examples=3)
    method.prime(task.load("train"))
    train = {example.id: example for example in task.load("train")}
    tokenizer = method.backbone.tokenizer()
    for name, text in zip(*method.record.values(), strict=True):
        word = {"negative": "bad", "positive": "good"}[train[name].target]
        shown = words.format(train[name].fields["sentence"], word)
        assert tokenizer.convert_ids_to_tokens(text) == tokenizer.tokenize(shown)


def test_what_does_not_fit_is_left_out_whole_and_counted(tiny, data_dir):
    task = sst2(data_dir, "{~sentence} film was a good film and the plot was {mask}")
    own, backbone = reading("verbalizer"), tiny("bert")
    method, bare = InContext(backbone, task, own, examples=6), ManualPrompt(backbone, task, own)
    method.prime(task.load("train"))
    assert method.readout.doubt([]) is bare.readout.doubt([]) is None  # no row was read
    counts = Counter()
    for example in task.load("test"):
        (row,), (plain,) = (m.encode([example])[0].rows for m in (method, bare))
        kept = _nearest(method.record["texts_before"], method.room() - len(plain.ids))
        assert row.ids == plain.ids[:1] + [i for text in kept for i in text] + plain.ids[1:]
        assert len(row.ids) <= method.room()
        counts[len(kept)] += 1
    assert 0 < min(counts) < 6
    said = f"{6 - counts[6]} of 6 rows have no room for all 6 demonstrations, one for {min(counts)}"
    assert said in method.readout.doubt([])


def _nearest(texts, left):
    kept = []
    for text in reversed(texts):
        if len(text) <= left:
            kept, left = [text, *kept], left - len(text)
    return kept


def test_the_seed_draws_as_many_of_each_label():
    task = task_of("pocket_sentiment", None, ROWS)
    train = task.load("train")
    drawn = {seed: [e.id for e in shots(train, 6, seed, "k")] for seed in range(8)}
    assert drawn[0] == [e.id for e in shots(train, 6, 0, "k")]
    assert len({tuple(ids) for ids in drawn.values()}) == 8
    labels = {example.id: example.target for example in train}
    for ids in drawn.values():
        assert Counter(map(labels.get, ids)) == {"positive": 3, "negative": 3}
    skewed = [e for e in train if e.target == "positive"] + [
        e for e in train if e.target == "negative"
    ][:1]
    assert Counter(e.target for e in shots(skewed, 4, 0, "k"))["negative"] == 1
    free = [shots(skewed, 4, seed, "k", balanced=False) for seed in range(8)]
    assert any(all(e.target == "positive" for e in own) for own in free)
    assert made(*LINES["masked"], seed=1).record != made(*LINES["masked"], seed=2).record


@pytest.mark.parametrize("name", ["masked", "texts", "seq2seq"])
def test_a_finished_run_answers_with_its_demonstrations(name, tmp_path):
    line = ["method=in_context", "method.examples=3", ROWS, *LINES[name], f"outputs={tmp_path}"]
    done = ptrun.run(*line)
    manifest = done.result.manifest
    assert {*manifest["demonstrations"]} <= {*manifest["data"]["train"]["ids"]}
    assert done.result.learned_parameters["total"] == 0 and not done.prompt
    test = task_of(LINES[name][1].removeprefix("task="), None, ROWS).load("test")
    rows = [dict(example.fields) for example in test]
    answers = [answer["prediction"] for answer in ptrun.predict([done], rows)]
    assert answers == [row["prediction"] for row in done.predictions]
    if name == "texts":
        with pytest.raises(UserError, match=r"echo: .* has texts before a row of its task"):
            Together(ready(str(done.folder), [])).first.scored  # noqa: B018
    other = ptrun.run(*line, "seed=2")
    assert other.result.manifest["demonstrations"] != manifest["demonstrations"]
    assert other.result.run_id != done.result.run_id


def test_runs_share_passes_and_answer_as_alone(tmp_path):
    """Other seeds have other rows, though the examples are the same."""
    line = ["method=in_context", ROWS, *LINES["causal"]]
    runs = [[f"seed={seed}", f"method.examples={n}"] for seed in (1, 2) for n in (0, 2)]
    for name, own in (("both", []), ("alone", ["hardware.population=1"])):
        ptrun.sweep(runs, *line, *own, f"outputs={tmp_path / name}")
    files = [sorted((tmp_path / name).rglob("predictions.jsonl")) for name in ("both", "alone")]
    assert [f.parent.name for f in files[0]] == [f.parent.name for f in files[1]]
    assert len(files[0]) == 4
    for both, alone in zip(*files, strict=True):
        assert both.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["method.examples=-1"], r"method\.examples is -1; use 0 or more"),
        (["method.examples=25"], r"method\.examples=25: there are 24 examples in train"),
        (["setting=zero_shot"], r"method\.examples=8: there are 0 examples in train"),
        (["method.examples=null"], "method.examples"),
        (["method.balanced=3"], "method.balanced"),
        (["readout=head"], "supports only verbalizer or writing"),
        (["backbone=pocket_electra"], "has no language-model head"),
        (["task=pocket_ner"], "in_context|cannot answer"),
    ],
)
def test_what_has_no_demonstrations_is_refused(typed, said, tmp_path):
    line = ["method=in_context", ROWS, "task=pocket_sentiment", f"outputs={tmp_path}"]
    with pytest.raises(UserError, match=said):
        ptrun.run(*line, *typed)


def test_a_conversation_is_refused(tmp_path):
    file = tmp_path / "talk.jsonl"
    file.write_text(
        json.dumps({"talk": [{"role": r, "content": "film"} for r in ("user", "assistant")]}) + "\n"
    )
    talk = Own(None, train=str(file), messages="talk")
    with pytest.raises(UserError, match="holds conversations"):
        InContext(shipped("pocket_gpt2"), talk, reading("writing"), examples=1)
