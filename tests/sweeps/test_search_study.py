"""The study: its proposals do not depend on kills, and trials below the median are abandoned."""

import json
from itertools import count

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder import digest
from ptrun.sweeps.search import Study, overrides, space

SPACE = space(["train.lr=tag(log,interval(1e-4,1e-1))", "method.length=int(interval(1,50))"])
TRIALS, TOGETHER = 24, 6


class Killed(Exception):
    pass


def scored(typed):
    """Return the dev scores of a trial at steps 10 and 20: highest near 0.01 and 20."""
    values = {o.partition("=")[0]: o.partition("=")[2] for o in typed}
    rate, length = float(values["train.lr"]), int(values["method.length"])
    final = 80 - 2000 * abs(rate - 0.01) - abs(length - 20)
    return final - 5, final


def search(folder, kills=(), sampler="tpe"):
    """Do a search; return each trial's overrides, state and value, and the winner.

    `kills` are the numbers of writes after which the process ends.
    """
    clock, kills = count(), set(kills)

    def tick():
        if (now := next(clock)) in kills:
            kills.remove(now)
            raise Killed

    while True:
        study = Study(folder, SPACE, sampler, 1, {"command": "x"})
        real = study._write
        study._write = lambda real=real: (real(), tick())
        try:
            while len(study.ended) < TRIALS:
                _round(study)
        except Killed:
            continue
        told = [(overrides(trial), trial.state, trial.value) for trial in study.trials]
        return told, study.winner().number


def _round(study):
    for trial in study.round(TOGETHER, TRIALS):
        typed = overrides(trial)
        first, final = scored(typed)
        floors = compose_run([typed[-1]]).trial
        abandoned = first < floors.get(10, -1e9)
        curve = [(10, first)] if abandoned else [(10, first), (20, final)]
        study.tell(trial, curve[-1][1], curve, abandoned=abandoned)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_that_is_killed_ends_with_the_same_trials(tmp_path, sampler):
    calm = search(tmp_path / "calm", sampler=sampler)
    for number, kills in enumerate([(2, 9), (5, 6, 7), (13, 14, 30, 40)]):
        assert search(tmp_path / f"rough{number}", kills, sampler) == calm
    assert len(calm[0]) == TRIALS


def test_proposals_are_not_repeated_and_come_near_the_best(tmp_path):
    told, winner = search(tmp_path)
    assert len({tuple(typed) for typed, _, _ in told}) == TRIALS
    assert told[winner][2] == max(value for _, state, value in told if state == "COMPLETE") > 60


@pytest.mark.slow
def test_trials_below_the_median_at_a_step_are_abandoned(tmp_path):
    told, _ = search(tmp_path)
    assert all("trial={}" in typed for typed, _, _ in told[:TOGETHER])
    complete = sorted(scored(typed)[0] for typed, _, _ in told[:TOGETHER])
    floors = compose_run([told[TOGETHER][0][-1]]).trial
    assert floors[10] == pytest.approx((complete[2] + complete[3]) / 2)
    for typed, state, _ in told[TOGETHER : 2 * TOGETHER]:
        assert (state == "PRUNED") == (scored(typed)[0] < floors[10])


def test_a_failure_counts_and_does_not_win(tmp_path):
    study = Study(tmp_path, SPACE, "random", 1, {})
    one, other = study.round(2, 2)
    study.tell(one, None, [])
    study.tell(other, 10.0, [(1, 10.0)])
    assert len(study.ended) == 2 and study.winner().number == other.number


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


def changed(folder, change):
    """Change what a study has in its file, with the right digest."""
    file = folder / "study.json"
    content = json.loads(file.read_text())
    change(content["trials"][1], content)
    file.write_text(json.dumps(digest.sealed(content)))


@pytest.fixture
def study(tmp_path):
    study = Study(tmp_path, SPACE, "random", 1, {"command": "x"})
    one, _ = study.round(2, 2)
    study.tell(one, 10.0, [(1, 10.0)])
    return study


def assert_set_aside(study, caplog):
    content = study.file.read_bytes()
    again = Study(study.file.parent, SPACE, "random", 1, {"command": "x"})
    assert not again.trials and f"{study.file}: damaged (" in caplog.text
    assert study.file.with_name("study.json~").read_bytes() == content
    params = [trial.params for trial in again.round(2, 2)]
    assert params == [trial.params for trial in study.trials]


@pytest.mark.parametrize(
    "change",
    [
        lambda trial, _: trial["params"].update(outputs="/elsewhere"),
        lambda trial, _: trial["params"].update({"train.lr": 0.5}),
        lambda trial, _: trial["params"].update({"train.lr": "0.1,outputs=/elsewhere"}),
        lambda trial, _: trial.update(floors={"x": 1.0}),
        lambda trial, _: trial.update(floors={"1": "y"}),
        lambda trial, _: trial.update(state="DONE"),
        lambda trial, _: trial.update(number=7),
        lambda trial, _: trial.update(overrides=["outputs=/elsewhere"]),
        lambda _, content: content.update(asked=["x"]),
        lambda _, content: content.pop("trials"),
    ],
)
def test_a_file_adds_no_key_and_no_value_outside_a_range(study, caplog, change):
    changed(study.file.parent, change)
    assert_set_aside(study, caplog)


FLIPS = [(place, bit) for place in (5, 60, 150, -20) for bit in (0, 4, 7)]


@pytest.mark.parametrize(("place", "bit"), [*FLIPS, *((n, None) for n in (0, 1, 30, -30, -3))])
def test_a_flipped_bit_or_a_cut_is_noticed(study, caplog, place, bit):
    content = bytearray(study.file.read_bytes())
    if bit is None:
        del content[place:]
    else:
        content[place] ^= 1 << bit
    study.file.write_bytes(content)
    assert_set_aside(study, caplog)


def test_a_link_is_not_followed(study):
    study.file.replace(study.file.with_name("other"))
    study.file.symlink_to("other")
    with pytest.raises(OSError, match="a link"):
        Study(study.file.parent, SPACE, "random", 1, {"command": "x"})
