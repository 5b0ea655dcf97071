"""No test replaces the clock of the whole process."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_test_replaces_the_clock_of_all_threads():
    """An event loop of another thread that asks a clock which stands still sleeps for hours."""
    replaced = re.compile(r"""setattr\((\w+\.)*time, "(monotonic|sleep)"|["']time\.(mono|sleep)""")
    own = [file for file in TESTS.rglob("*.py") if replaced.search(file.read_text())]
    assert own == [], "use tests.clock.own_clock"
