"""The study: it proposes the same again, and trials below the median are abandoned."""

import json

import pytest

from ptrun.config.compose import compose_run
from ptrun.sweeps.search import Study, overrides, space

SPACE = space(["train.lr=tag(log,interval(1e-4,1e-1))", "method.length=int(interval(1,50))"])
TRIALS, TOGETHER = 24, 6


def scored(typed):
    """Return the dev scores of a trial at steps 10 and 20: highest near 0.01 and 20."""
    values = {o.partition("=")[0]: o.partition("=")[2] for o in typed}
    rate, length = float(values["train.lr"]), int(values["method.length"])
    final = 80 - 2000 * abs(rate - 0.01) - abs(length - 20)
    return final - 5, final


def search(sampler="tpe"):
    """Do a search; return each trial's overrides, state and value, and the winner."""
    study, proposals = Study(SPACE, sampler, 1), []
    while len(study.trials) < TRIALS:
        floors = study.floors()
        for trial in study.round(TOGETHER):
            proposals.append(typed := overrides(trial.params, floors))
            first, final = scored(typed)
            abandoned = first < compose_run([typed[-1]]).trial.get(10, -1e9)
            curve = [(10, first)] if abandoned else [(10, first), (20, final)]
            study.tell(trial, curve[-1][1], curve, abandoned=abandoned)
    told = zip(proposals, study.trials, strict=True)
    return [(typed, t.state.name, t.value) for typed, t in told], study.winner().number


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_the_same_command_makes_the_same_proposals(sampler):
    assert search(sampler) == search(sampler)


def test_proposals_are_not_repeated_and_come_near_the_best():
    told, winner = search()
    assert len({tuple(typed) for typed, _, _ in told}) == TRIALS
    assert told[winner][2] == max(value for _, state, value in told if state == "COMPLETE") > 60


@pytest.mark.slow
def test_trials_below_the_median_at_a_step_are_abandoned():
    told, _ = search()
    assert all("trial={}" in typed for typed, _, _ in told[:TOGETHER])
    complete = sorted(scored(typed)[0] for typed, _, _ in told[:TOGETHER])
    floors = compose_run([told[TOGETHER][0][-1]]).trial
    assert floors[10] == pytest.approx((complete[2] + complete[3]) / 2)
    for typed, state, _ in told[TOGETHER : 2 * TOGETHER]:
        assert (state == "PRUNED") == (scored(typed)[0] < floors[10])


def test_a_failure_counts_and_does_not_win():
    study = Study(SPACE, "random", 1)
    one, other = study.round(2)
    study.tell(one, None, [])
    study.tell(other, 10.0, [(1, 10.0)])
    assert len(study.trials) == 2 and study.winner().number == other.number


def test_a_grid_has_each_point_once():
    own = space(["train.lr=1e-3,1e-2", "method.length=range(1,4)"])
    study = Study(own, "grid", 1)
    found = []
    for size in (4, 2):
        for trial in study.round(size):
            found.append(json.dumps(trial.params, sort_keys=True))
            study.tell(trial, 1.0, [(1, 1.0)])
    assert len(set(found)) == len(found) == 6
