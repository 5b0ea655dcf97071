"""Ids, prompts and answers are those of the golden list.

What moves here moves for every user. If it must: `make golden ARGS=PART`, in a commit of its own
that names the reason.
"""

import pytest

from tests.golden import answers, cells
from tests.golden.__main__ import recorded

PROMPTS, IDS = recorded("prompts"), recorded("ids")


def test_the_list_has_sixty_cells():
    listed = {str(cell) for cell in cells.cells()}
    assert len(listed) == 60
    assert listed == {*IDS} == {*PROMPTS["cells"]}


def test_ids_are_as_recorded(tmp_path):
    assert {str(cell): cells.run_id(cell, tmp_path) for cell in cells.cells()} == IDS


def test_tables_are_read_as_recorded(tmp_path):
    assert answers.tables(tmp_path) == recorded("answers")["tables"]


@pytest.mark.slow
def test_cells_of_papers_are_as_recorded():
    assert answers.papers() == recorded("answers")["papers"]


@pytest.mark.slow
@pytest.mark.parametrize("cell", cells.cells(), ids=str)
def test_a_prompt_is_as_recorded(cell, tmp_path):
    trained, before = cells.prompt(cell, tmp_path), PROMPTS["cells"][str(cell)]
    assert trained["norm"] == pytest.approx(before["norm"], rel=1e-3)
    if cells.processor() == PROMPTS["processor"]:
        assert trained["digest"] == before["digest"]
