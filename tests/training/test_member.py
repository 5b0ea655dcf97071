"""A member on its own: its journal, its failures, what it reads, and how it comes back."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from ptrun.config.schema import Order, Schedule, Select, TrainConfig
from ptrun.readout.base import Features, TokenRow
from ptrun.task.stored import stored
from ptrun.training.member import Member, batches, shuffled
from tests.small_runs import Memory


def member(journal=None, rows=10, **train):
    torch.manual_seed(3)
    weight = nn.Parameter(torch.ones(2))
    reads = SimpleNamespace(writes=False)
    method = SimpleNamespace(learned=lambda: {"w": weight}, readout=reads, rates={})
    given = {"max_steps": 4, "batch_size": 2, "lr": 0.1, "schedule": Schedule.constant, **train}
    features = [Features(str(row), [], []) for row in range(rows)]
    settings = ("accuracy", TrainConfig(**given), 1, journal or Memory())
    score = lambda values: {"accuracy": values[0], "f1": values[1]}  # noqa: E731
    made = Member(method, features, [0], score, *settings)
    weight.grad = torch.tensor([3.0, 4.0])
    return made


def take(one, loss, tokens):
    """Take a step as the engine does: it clips the gradients of all members first."""
    before, norm = one.step, float(one.stepper.clip(one.train.clip))
    one.send(torch.tensor(0.0 if math.isfinite(loss + norm) else 1.0))
    one.update(before, loss, norm, tokens)


def test_the_journal_has_every_step_and_evaluation():
    one = member()
    take(one, 0.5, 7)
    one.judge([50.0, 40.0])
    step, dev = one.journal.rows
    assert step == {"event": "step", "step": 1, "loss": 0.5, "norm": 5.0, "lr": 0.1}
    assert dev == {"event": "dev", "step": 1, "epoch": 0.2, "accuracy": 50.0, "f1": 40.0}
    assert (one.step, one.tokens, one.best_step, one.best_value) == (1, 7, 1, 50.0)


def test_the_last_state_is_kept_where_it_has_no_score():
    """Texts may be written at some evaluations only; `select=last` keeps what comes after them."""
    one = member(select=Select.last, rows=10)
    take(one, 0.5, 7)
    one.judge([50.0, 40.0])
    one.learned["w"].grad = torch.tensor([3.0, 4.0])
    take(one, 0.5, 7)
    last = one.learned["w"].detach().clone()
    one.score = lambda values: {"loss": values[0]}
    one.judge([1.0])
    one.finish()
    assert one.best_step == 2 and torch.equal(one.learned["w"], last)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_fails_at_its_own_step(loss):
    one = member()
    take(one, 0.5, 7)
    before = one.learned["w"].detach().clone()
    one.learned["w"].grad = torch.tensor([3.0, 4.0])
    take(one, loss, 7)
    assert one.failed.startswith(f"loss {loss} and gradient norm 5.0 at step 2")
    assert one.journal.rows[-1] == {"event": "failed", "step": 2, "reason": one.failed}
    assert not one.active and one.step == 1 and torch.equal(one.learned["w"], before)


def test_less_than_an_epoch_reads_the_examples_of_its_steps_alone():
    one = member(max_steps=2)
    first = one.batch()
    take(one, 0.5, 1)
    assert one.reads() == [*first, *one.batch()]
    assert len({row.id for row in one.reads()}) == 4
    assert [row.id for row in member(max_steps=50).reads()] == [str(row) for row in range(10)]


def features(count):
    return [Features(str(n), [], [], {}) for n in range(count)]


def test_an_epoch_may_have_the_order_of_the_file():
    rows = [Features(str(n), [TokenRow([5] * (n * 7 % 11 + 1), reads=[0])], []) for n in range(50)]

    def order(order_by):
        made = batches(rows, 2, 1, 2, order_by=order_by)
        return [index for batch in made for index in batch]

    assert order(Order.file) == list(range(50))
    parts = [sorted(part, key=lambda n: -(n * 7 % 11)) for part in (range(40), range(40, 50))]
    assert order(Order.buckets) == [*parts[0], *parts[1]]


@pytest.mark.parametrize(
    ("count", "drop_last", "sizes"),
    [(10, False, [4, 4, 2]), (10, True, [4, 4]), (8, True, [4, 4]), (3, True, [3]), (0, True, [])],
)
def test_an_epoch_is_its_order_in_slices(tmp_path, count, drop_last, sizes):
    rows, read = features(count), []
    first = lambda row: read.append(row) or Features(**row)  # noqa: E731
    file = stored(tmp_path / "rows.arrow", lambda: rows, first)
    order = shuffled(count, 1, 2).tolist()
    expected = [order[4 * place :][:size] for place, size in enumerate(sizes)]
    for own in (rows, file):
        made = batches(own, 4, 1, 2, drop_last=drop_last)
        assert [list(batch) for batch in made] == expected
    assert len(read) <= 1
