"""What clients send is answered as the recordings and the table of the docs say."""

import pytest

from tests.serve.clients import CALLS, MARKED, PAGE, answered, table, talking
from tests.tiers import package


@pytest.mark.slow
def test_a_server_answers_as_recorded(tmp_path):
    package("llguidance")
    with talking(tmp_path) as (address, chat, plain):
        told = answered(address, chat, plain)
    for call, other in zip(CALLS["calls"], told, strict=True):
        assert other == call, f"{call['client']}: {call['what']}; python -m tests.serve.clients"


def test_the_table_of_the_page_is_made_of_the_recordings():
    assert MARKED.search(PAGE.read_text(encoding="utf-8"))[0] == table(CALLS["calls"])
