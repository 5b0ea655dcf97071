"""The page of results, from the figures in results/faults.json.

It also names the faults that tests try already, which are found where the page says.
"""

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from workshop.drill.ends import ENDS, Ended
from workshop.drill.parts import PARTS

_HEAD = """\
# Faults

What becomes of commands that are killed, starved, or fed damaged files: `make drill`. Every case is
a process of its own on the pocket world. `same`: the fault changes nothing. `healed`: the same
command gives the answer of an undisturbed one. `refused`: one message names the path; once the
cause is gone, the same command gives that answer. `unclear`: refused without the path. The last
three must be 0: an exception reached the shell, a command did not end or cannot be finished, or
there is another answer.
"""
_LEFT_OUT = """\
Not damaged: files that only the user writes, as data, rows to predict, or an adapter of PEFT. A
change in them that is still valid is another input: data and weights are part of the id of a run.
"""
_TESTS = Path(__file__).parents[2] / "tests"
COVERED = {
    "stale leases": [
        "folder/test_lease.py::test_the_lease_of_a_killed_process_is_taken_over",
        "folder/test_lease.py::test_a_process_is_known_by_its_id_its_machine_and_its_birth",
        "sweeps/test_beats.py::test_a_sweep_takes_over_runs_of_a_machine_that_died",
    ],
    "two owners at once": [
        "folder/test_lease.py::test_a_lease_is_held_by_one_process_which_is_named",
        "folder/test_lease.py::test_an_owner_on_another_machine_keeps_its_lease_while_it_beats",
        "sweeps/test_scheduler.py::test_a_run_of_another_process_is_left_to_it",
        "workshop/drill/test_two_owners.py::test_of_two_commands_at_once_one_does_the_run",
    ],
    "clock jumps": [
        "test_files.py::test_a_clock_that_differs_by_ten_seconds_changes_no_owner",
        "runs/test_clock.py::test_a_clock_that_jumps_while_a_run_trains_changes_nothing",
    ],
    "a stale or busy network file system": [
        "test_files.py::test_a_stale_handle_is_read_again",
        "test_files.py::test_a_file_that_is_open_elsewhere_is_replaced_when_it_is_closed",
    ],
    "NaN and infinity": [
        "training/test_stopping.py::test_a_dev_score_that_is_no_number_fails_the_member",
        "cli/test_rerun.py::test_a_failed_run_fails_again_and_the_difference_is_told",
        "cli/test_runs.py::test_a_sweep_goes_on_past_a_failed_job_and_reports_mean_and_failures",
    ],
    "out of memory": [
        "training/test_out_of_memory.py::"
        "test_a_step_done_again_in_halves_is_that_of_a_run_with_the_smaller_budget",
        "training/test_out_of_memory.py::"
        "test_a_second_end_of_memory_says_what_to_type_and_the_run_goes_on_bit_equal",
    ],
    "a dead or hanging rank": [
        "hardware/test_start_ranks.py::test_a_killed_rank_ends_the_job_and_is_named",
        "hardware/test_start_ranks.py::"
        "test_a_rank_that_will_not_end_is_killed_and_what_it_started_too",
        "hardware/test_start_ranks.py::test_no_rank_outlives_its_launcher",
        "hardware/test_deepspeed_engine.py::test_ranks_learn_what_one_process_learns",
    ],
    "a job that a cluster preempts": [
        "cli/test_slurm.py::test_twelve_runs_survive_preemption_and_requeueing",
        "cli/test_slurm.py::test_the_same_command_takes_up_a_job_that_was_killed",
    ],
    "a hub that is cut off, fails or falls silent": [
        "hub/test_download.py::test_a_cut_download_goes_on_where_it_was_cut",
        "hub/test_download.py::test_a_hub_that_falls_silent_is_asked_six_times_and_then_refused",
        "hub/test_download.py::test_a_failing_hub_is_one_sentence",
    ],
}


def counts(ended: Sequence[Ended]) -> dict[str, int]:
    """Return the figures of a row."""
    own = {"cases": len(ended), **{end: 0 for end in ENDS}}
    for one in ended:
        own[one.end] += 1
    faults, drafts = sum(one.faults for one in ended), sum(one.drafts for one in ended)
    return {**own, "faults": faults, "drafts": drafts}


def text(kept: Mapping[str, Any]) -> str:
    """Return the page."""
    parts = [_part(name, kept["parts"][name]) for name in PARTS if name in kept["parts"]]
    total = _table({name: _sum(own["rows"]) for name, own in kept["parts"].items()}, "part")
    return "\n".join([_HEAD, total, *parts, _LEFT_OUT, _times(kept.get("times")), _covered()])


def _part(name: str, own: Mapping[str, Any]) -> str:
    seconds = sum(row.get("seconds", 0) for row in own["rows"].values())
    made = f"{seconds:,} s in all."
    if name == "kills":
        total = _sum(own["rows"])
        made = f"{total['faults']} kills; {total['drafts']} drafts are left. {made}"
    how = fill(" ".join(own["how"].split()), 100)
    return f"## {PARTS[name].title}\n\n{how}\n{made}\n\n{_table(own['rows'], 'kind')}"


def _table(rows: Mapping[str, Mapping[str, int]], head: str) -> str:
    names = ("cases", *ENDS)
    lines = [f"| {head} | {' | '.join(names)} |", "|---" + "|---:" * len(names) + "|"]
    whole = {**rows, "**all**": _sum(rows)} if len(rows) > 1 else rows
    lines += [f"| {kind} | {' | '.join(str(r[n]) for n in names)} |" for kind, r in whole.items()]
    return "\n".join(lines) + "\n"


def _sum(rows: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    keys = ("cases", *ENDS, "faults", "drafts")
    return {key: sum(row[key] for row in rows.values()) for key in keys}


def _times(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    resumes = ", ".join(map(str, found["seconds_to_resume"]))
    return (
        "## Saves and resuming\n\n"
        f"A run saves at every evaluation, and after {found['save_seconds']:.0f} s without a save\n"
        "(`SAVE_SECONDS` in `ptrun/training/member.py`); "
        "`workshop.adapt` every `save_every=300` s.\n"
        f"Longest time without a save, of {found['saves_watched']} in a run without evaluations: "
        f"{found['longest_without_save']} s.\n"
        "From the start of a new process to its first new step, imports and all: "
        f"{resumes} s, at a load of {found['load']} on the machine.\n"
    )


def _covered() -> str:
    lines = ["## Faults that tests try", ""]
    for fault, names in COVERED.items():
        lines += [f"- {fault}:", *(f"  - `tests/{name}`" for name in names)]
    return "\n".join(lines) + "\n"


def missing() -> list[str]:
    """Return the names of tests that are not where they are said to be."""
    every = [name for names in COVERED.values() for name in names]
    return [name for name in every if not _exists(*name.split("::"))]


def _exists(file: str, name: str) -> bool:
    path = _TESTS / file
    if not path.is_file():
        return False
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    return name in [node.name for node in found]
