"""Faults that tests try already: named on the page, and found where the page says."""

import ast
from pathlib import Path

_TESTS = Path(__file__).parents[2] / "tests"
COVERED = {
    "stale leases": [
        "folder/test_lease.py::test_the_lease_of_a_killed_process_is_taken_over",
        "folder/test_lease.py::test_an_owner_on_another_machine_that_is_silent_is_followed",
        "folder/test_lease.py::test_a_later_process_with_the_same_id_is_another_one",
        "sweeps/test_beats.py::test_a_sweep_takes_over_runs_of_a_machine_that_died",
    ],
    "two owners at once": [
        "folder/test_lease.py::test_a_lease_is_held_by_one_process_which_is_named",
        "folder/test_lease.py::test_an_owner_on_another_machine_keeps_its_lease_while_it_beats",
        "sweeps/test_scheduler.py::test_a_run_of_another_process_is_left_to_it",
        "fault/test_two_owners.py::test_of_two_commands_at_once_one_does_the_run",
    ],
    "clock jumps": [
        "test_files.py::test_a_clock_that_differs_by_ten_seconds_changes_no_owner",
        "fault/test_clock.py::test_a_clock_that_jumps_while_a_run_trains_changes_nothing",
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
        "hub/test_data.py::test_a_cut_download_goes_on_where_it_was_cut",
        "hub/test_data.py::test_a_failing_hub_is_one_sentence",
    ],
}


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
