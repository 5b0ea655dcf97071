"""Each sentence of the page on files of somebody else has the tests that would fail without it."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "concepts" / "trust.md").read_text(encoding="utf-8")
HOSTILE, FILES, USER = "cli/test_hostile.py", "test_files.py", "config/test_trust.py"
PICKLED, DRILL = "hub/test_pickled_converting.py", "workshop/drill/test_drill.py"
TESTED = {  # how a sentence begins: file and test, or None for what promises nothing
    "A data file, a run folder": (DRILL, "test_files_of_somebody_else_do_no_harm"),
    "It runs no code, writes nowhere": (HOSTILE, "test_a_result_executes_and_writes_nothing"),
    "If it is wrong, one message": (DRILL, "test_files_of_somebody_else_do_no_harm"),
    "Options are another matter": (USER, "test_options_count_once_their_folder"),
    "| data: CSV": ("task/test_table.py", "test_a_huge_line_is_refused_before_it_is_read"),
    "| a run folder": (HOSTILE, "test_a_request_executes_and_writes_nothing"),
    "| a model folder": (HOSTILE, "test_a_model_folder_executes_nothing"),
    "| a checkpoint to import": (HOSTILE, "test_a_checkpoint_executes_nothing"),
    "| the hub": ("hub/test_repository.py", "test_headers_that_become_paths_are_names"),
    "A file of a run is opened only if": (FILES, "test_only_regular_files_are_read"),
    "JSON, YAML and journals over": (FILES, "test_more_than_the_limit_is_not_read"),
    "Data, and the files of a model": (FILES, "test_a_link_that_may_be_followed"),
    "Options in `./ptrun_conf`": (USER, "test_options_count_once_their_folder"),
    "Before that nothing": (USER, "test_options_count_once_their_folder"),
    "A trusted folder can do": None,
    "As in editors, it stays": (USER, "test_options_count_once_their_folder"),
    "`ptrun trust --list` shows": (USER, "test_trust_is_listed_and_taken_back"),
    "`ptrun new` trusts a folder": (USER, "test_what_ptrun_writes_is_trusted"),
    "`PTRUN_TRUST=1` trusts every": (USER, "test_a_variable_trusts_every_folder"),
    "Always read are your own": (USER, "test_the_user_s_own_configuration_counts"),
    "If a file replaces an option": (USER, "test_what_a_file_replaces_is_said_once"),
    "A `_target_` is a class": (USER, "test_a_trusted_folder_counts_for_the_classes"),
    "It is imported if such": (USER, "test_a_trusted_folder_counts_for_the_classes"),
    "Any other is refused and": (HOSTILE, "test_a_trusted_folder_runs_no_class_of_a_run"),
    "An option that a run names": (HOSTILE, "test_a_request_executes_and_writes_nothing"),
    "`ptrun rerun` writes where": (HOSTILE, "test_a_request_executes_and_writes_nothing"),
    "`outputs` may be a link": (FILES, "test_a_path_below_the_folder_of_runs"),
    "A link below `outputs`": (FILES, "test_a_path_below_the_folder_of_runs"),
    "A new file is a draft": (FILES, "test_a_planted_draft_is_replaced"),
    "`torch.load(weights_only=True)`": (PICKLED, "test_a_hostile_pickle_is_refused"),
    "Settings and random states": (PICKLED, "test_settings_and_random_states"),
    "Any other name is printed": (PICKLED, "test_an_object_is_named_and_not_made"),
    "`allow_bin=true` is a question": (PICKLED, "test_a_hostile_pickle_is_refused"),
    "Only you can type it, or": ("hub/test_pickled.py", "test_an_id_that_is_no_preset"),
    "Messages write control": ("config/test_readable.py", "test_control_characters_are_written"),
    "The HTML page of": ("papers/test_page.py", "test_the_page_refers_to_nothing_outside"),
    "In CSV and TSV files": ("reporting/test_spreadsheet.py", "test_a_formula_begins_with"),
    "The completion of a shell": ("config/test_completing.py", "test_names_that_a_shell_would"),
    "ptrun prints and stores no": (HOSTILE, "test_a_result_executes_and_writes_nothing"),
    "A key of wandb goes": ("tracking/test_trackers.py", "test_settings_of_the_folder"),
    "No process that ptrun starts": ("sweeps/test_slurm.py", "test_a_job_imports_nothing"),
    "Whom `ptrun serve` answers": ("predicting/test_serving.py", "test_another_host_is_refused"),
    "- A hostile model": None,
    "No check finds that": None,
    "- A digest finds damage": ("folder/test_result.py", "test_an_edited_score_is_noticed"),
    "Whoever writes a folder": None,
    "- Very large files": None,
    "The libraries below": None,
}


def sentences():
    """Return the sentences and rows of the page, without headings and examples."""
    prose = re.sub(r"```.*?```|^#.*?$", "", PAGE, flags=re.S | re.M)
    sentences = []
    for part in filter(str.strip, prose.split("\n\n")):
        if part.lstrip().startswith("|"):
            sentences += part.strip().splitlines()[2:]
        else:
            sentences += re.split(r"(?<=[.:])\s+(?=[A-Z`]|- |ptrun )", " ".join(part.split()))
    return sentences


@pytest.mark.parametrize("sentence", sentences())
def test_a_sentence_has_its_test(sentence):
    begins = [begin for begin in TESTED if sentence.startswith(begin)]
    assert len(begins) == 1, sentence
    if place := TESTED[begins[0]]:
        file, name = place
        assert name in (TESTS / file).read_text(encoding="utf-8"), place


def test_no_line_of_the_list_is_left_over():
    assert all(any(s.startswith(begin) for s in sentences()) for begin in TESTED)
