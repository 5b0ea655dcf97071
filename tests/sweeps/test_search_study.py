"""The study: its proposals do not depend on kills, and trials below the median are abandoned."""

import json
from itertools import count

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder import digest
from ptrun.sweeps.search import Study, space

SPACE = space(["train.lr=tag(log,interval(1e-4,1e-1))", "method.length=int(interval(1,50))"])
TRIALS, TOGETHER = 24, 6


class Killed(Exception):
    pass


def scored(overrides):
    """Return the dev scores of a trial at steps 10 and 20: highest near 0.01 and 20."""
    values = {o.partition("=")[0]: o.partition("=")[2] for o in overrides}
    rate, length = float(values["train.lr"]), int(values["method.length"])
    final = 80 - 2000 * abs(rate - 0.01) - abs(length - 20)
    return final - 5, final


def search(folder, kills=(), sampler="tpe"):
    """Do a search; return each trial's overrides, state and value.

    `kills` are the numbers of tells and asks at which the process ends.
    """
    clock, kills = count(), set(kills)

    def tick():
        if (now := next(clock)) in kills:
            kills.remove(now)
            raise Killed

    while True:
        study = Study(folder, SPACE, sampler, 1, {"command": "x"})
        real = study._ask
        study._ask = lambda number, floors, real=real: (real(number, floors), tick())
        try:
            while len(study.ended) < TRIALS:
                _round(study, tick)
        except Killed:
            continue
        trials = study.trials
        told = [(study.overrides(t), t.state.name, t.value) for t in trials]
        return told, study.winner().number


def _round(study, tick):
    for trial in study.round(TOGETHER, TRIALS):
        overrides = study.overrides(trial)
        first, final = scored(overrides)
        floors = compose_run([overrides[-1]]).trial
        abandoned = first < floors.get(10, -1e9)
        curve = [(10, first)] if abandoned else [(10, first), (20, final)]
        study.tell(trial, curve[-1][1], curve, abandoned=abandoned)
        tick()


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_that_is_killed_ends_with_the_same_trials(tmp_path, sampler):
    calm = search(tmp_path / "calm", sampler=sampler)
    for number, kills in enumerate([(2, 9), (5, 6, 7), (13, 14, 30, 40)]):
        assert search(tmp_path / f"rough{number}", kills, sampler) == calm
    assert len(calm[0]) == TRIALS


def test_proposals_are_not_repeated_and_come_near_the_best(tmp_path):
    told, winner = search(tmp_path)
    assert len({tuple(overrides) for overrides, _, _ in told}) == TRIALS
    assert told[winner][2] == max(value for _, state, value in told if state == "COMPLETE") > 60


@pytest.mark.slow
def test_trials_below_the_median_at_a_step_are_abandoned(tmp_path):
    told, _ = search(tmp_path)
    assert all("trial={}" in overrides for overrides, _, _ in told[:TOGETHER])
    complete = sorted(scored(overrides)[0] for overrides, _, _ in told[:TOGETHER])
    floors = compose_run([told[TOGETHER][0][-1]]).trial
    assert floors[10] == pytest.approx((complete[2] + complete[3]) / 2)
    for overrides, state, _ in told[TOGETHER : 2 * TOGETHER]:
        assert (state == "PRUNED") == (scored(overrides)[0] < floors[10])


def test_a_failure_counts_and_does_not_win(tmp_path):
    study = Study(tmp_path, SPACE, "random", 1, {})
    one, other = study.round(2, 2)
    study.tell(one, None, [])
    study.tell(other, 10.0, [(1, 10.0)])
    assert len(study.ended) == 2 and study.winner().number == other.number


def test_a_trial_that_was_cut_while_it_was_proposed_is_completed(tmp_path):
    study = Study(tmp_path, SPACE, "tpe", 1, {})
    study.study.sampler = study._sampler(1)
    cut = study.study.ask()
    cut.suggest_float("train.lr", 1e-4, 1e-1, log=True)
    first, *_ = Study(tmp_path, SPACE, "tpe", 1, {}).round(2, 2)
    assert first.params.keys() == SPACE.ranges.keys()
    assert first.params["train.lr"] == cut.params["train.lr"]
    assert len(study.overrides(first)) == 3


def test_a_grid_has_each_point_once(tmp_path):
    own = space(["train.lr=1e-3,1e-2", "method.length=range(1,4)"])
    study = Study(tmp_path, own, "grid", 1, {})
    found = []
    while len(study.ended) < 6:
        for trial in study.round(4, 6):
            found.append(json.dumps(trial.params, sort_keys=True))
            study.tell(trial, 1.0, [(1, 1.0)])
    assert len(set(found)) == len(found) == 6


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    Study(tmp_path, SPACE, "tpe", 1, {"command": ["a=1"], "together": 8})
    with pytest.raises(UserError, match=r"a search with another together \(8\)\. Type name=NAME"):
        Study(tmp_path, SPACE, "tpe", 1, {"command": ["a=1"], "together": 4})


def damaged(folder, change):
    """Change the operations of a journal, with the right checksums."""
    file = folder / "study.journal"
    logs = [json.loads(line) for line in file.read_text().splitlines()]
    for log in logs:
        log.pop("digest")
        change(log)
    file.write_text("".join(digest.line(log) for log in logs))


def test_a_journal_adds_no_key_and_no_value_outside_a_range(tmp_path):
    study = Study(tmp_path, SPACE, "random", 1, {"command": "x"})
    study.round(2, 2)

    def other(log):
        if log.get("param_name") == "train.lr":
            log["param_name"] = "outputs"
        if log.get("user_attr"):
            log["user_attr"]["overrides"] = ["outputs=/elsewhere"]

    damaged(tmp_path, other)
    found = Study(tmp_path, SPACE, "random", 1, {"command": "x"})
    for trial in found.round(2, 2):
        keys = {one.partition("=")[0] for one in found.overrides(trial)}
        assert keys == {"train.lr", "method.length", "trial"}


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.update(op_code=77),
        lambda log: log.get("user_attr", {}).update(asked=["x"]),
        lambda log: "distribution" in log and log.update(distribution="no JSON"),
        lambda log: "user_attr" in log and log["user_attr"].update(floors={"x": "y"}),
    ],
)
def test_operations_of_another_form_are_set_aside(tmp_path, caplog, change):
    Study(tmp_path, SPACE, "random", 1, {"command": "x"}).round(2, 2)
    damaged(tmp_path, change)
    study = Study(tmp_path, SPACE, "random", 1, {"command": "x"})
    assert not study.trials and "study.journal: damaged" in caplog.text
    assert (tmp_path / "study.journal~").is_file()
