"""Rows that are computed together: their scores, grammars and settings are those of each alone."""

from dataclasses import replace

import pytest
import torch

import ptrun
from ptrun.errors import UserError
from ptrun.readout.base import collate
from ptrun.serve.batches import _so_far
from ptrun.serve.rows import WaitingRow, Wish
from ptrun.serve.structured import Structure
from tests.predicting.conftest import ROWS
from tests.predicting.test_together import rows_of
from tests.serve.conftest import serving
from tests.tiers import package

KINDS = ("prefix", "lora", "cartridge")
WISHES = [
    Wish(max_tokens=9, logprobs=3),
    Wish(max_tokens=80, logprobs=0, temperature=1.5, seed=7),
    Wish(max_tokens=12),
    Wish(max_tokens=12, logprobs=2, temperature=0.8, top_k=5, frequency_penalty=1.5),
]


def answered(batches, jobs):
    batches.add(jobs)
    return [job.done.result(60) for job in jobs]


def passes(job):
    """Return the log-probabilities at each token, each from a pass over the row alone."""
    device, rows = torch.device("cpu"), []
    for count in range(len(job.tokens)):
        row = _so_far(job.features, job.tokens[:count])
        with torch.no_grad():
            output = job.method.backbone.forward(job.method.inputs(collate([row], None, device)))
        rows.append(output.logits[0].log_softmax(-1))
    return rows


def test_scores_of_written_tokens_are_those_of_plain_passes(folder, runs):
    texts = [row["facts"] for row in rows_of(runs["lora"])]
    with serving(folder) as (_, _, batches):
        jobs = [
            WaitingRow(runs[KINDS[i % 3]].id, {"prompt": texts[i % 4]}, WISHES[i % 4], uncut=True)
            for i in range(8)
        ]
        answers = answered(batches, jobs)
    for job, answer in zip(jobs, answers, strict=True):
        if job.wish.logprobs is None:
            assert answer.scores == []
            continue
        assert [score.token for score in answer.scores] == job.tokens
        for score, wanted in zip(answer.scores, passes(job), strict=True):
            assert score.logprob == pytest.approx(float(wanted[score.token]), abs=1e-4)
            best = wanted.topk(job.wish.logprobs).values.tolist()
            assert [share for _, share in score.top] == pytest.approx(best, abs=1e-4)
            assert all(s == pytest.approx(float(wanted[t]), abs=1e-4) for t, s in score.top)


def test_a_grammar_and_a_bias_are_of_their_row(folder, runs):
    package("llguidance")
    prompt, name = {"prompt": "Frank Venn"}, runs["lora"].id
    plain = Wish(max_tokens=20, temperature=2.0, seed=3)
    form = Structure({"type": "string", "pattern": "^a[bc]*d$"})
    grammar = replace(plain, structure=form)
    bias = Wish(max_tokens=4, logit_bias=((70, 100.0),))
    with serving(folder) as (_, _, batches):
        wishes = [plain, grammar, bias, grammar]
        jobs = [WaitingRow(name, prompt, wish, uncut=True) for wish in wishes]
        free, bound, _, again = answered(batches, jobs)
        (alone,) = answered(batches, [WaitingRow(name, prompt, plain, uncut=True)])
    assert free.prediction.value == alone.prediction.value
    assert jobs[2].tokens == [70] * 4
    text = bound.prediction.value
    assert text == again.prediction.value and text[:2] == '"a' and {*text[2:]} <= {*'bcd"'}
    assert text.endswith('d"') or not bound.ended


def test_beams_have_neither_scores_nor_grammar(tmp_path):
    common = ["backbone=pocket_gpt2", ROWS, "train.max_steps=1", f"outputs={tmp_path}"]
    run = ptrun.run("method=lora", "task=pocket_writing", "readout.beams=2", *common)
    texts = [row["facts"] for row in rows_of(run)[:3]]
    wishes = [
        Wish(logprobs=1),
        Wish(structure=Structure({})),
        Wish(logprobs=1, temperature=0),
        Wish(),
    ]
    with serving(run.folder.parent) as (_, _, batches):
        jobs = [WaitingRow(run.id, {"prompt": texts[0]}, wish, uncut=True) for wish in wishes]
        jobs += [WaitingRow(run.id, {"prompt": text}, uncut=True) for text in texts]
        batches.add(jobs)
        for job in jobs[:2]:
            with pytest.raises(UserError, match="searches with 2 beams"):
                job.done.result(60)
        assert len(jobs[2].done.result(60).scores) == len(jobs[2].tokens)
        found = [job.done.result(60).prediction.value for job in jobs[3:]]
    wanted = [one["prediction"] for one in run.predict([{"facts": text} for text in texts])]
    assert found == [wanted[0], *wanted]


def test_a_new_text_waits_for_one_token_of_the_others(folder, runs):
    """Its first token comes while long texts are written; a row whose client left is gone."""
    prompt, seen, jobs = {"prompt": "Frank Venn"}, [], []
    long = Wish(max_tokens=150, temperature=3.0, seed=1, logit_bias=((0, -100.0), (1, -100.0)))

    def told(_):
        if len(jobs) == 4 and len(jobs[0].tokens) == 3:  # in the thread that computes
            jobs.append(WaitingRow(runs["lora"].id, prompt, Wish(max_tokens=2), uncut=True))
            jobs[-1].told = lambda _: seen.append(len(jobs[0].tokens))
            jobs[1].done.cancel()
            batches.add(jobs[-1:])

    with serving(folder) as (_, _, batches):
        others = [WaitingRow(runs[name].id, prompt, long, uncut=True) for name in (*KINDS, "lora")]
        others[0].told = told
        jobs.extend(others)
        batches.add(others)
        ends = [job.done.result(60) for job in (others[0], *others[2:])]
        late = jobs[-1].done.result(60)
    assert seen[0] in (3, 4) and len(seen) == len(late.tokens) == 2
    assert all(len(end.tokens) == 150 for end in ends) and len(others[1].tokens) <= 4
