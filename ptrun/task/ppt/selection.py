"""Next-sentence selection (PPT) from six lines or, in the unified format, from 2 to 16.

One option is a neighbour of the query. Some are other lines of the same document, and the rest are
lines of four other documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ptrun.task.ppt.blocks import Case, Need
from ptrun.task.ppt.pairs import apart, neighbours

NEED = Need(lines=5, characters=10, words=5, others=4)
UNIFIED_NEED = Need(lines=6, characters=10, words=5, others=4)


@dataclass(frozen=True)
class Layout:
    """The sources of a question's options, and the length limits.

    Args:
        same: number of lines of the same document that are no neighbours.
        others: number of distinct lines of each other document.
        query, option: longest query and option, in tokens of the model that reads them.
    """

    same: int
    others: tuple[int, int, int, int]
    query: int
    option: int

    @property
    def options(self) -> int:
        """The number of options; one is the neighbour."""
        return 1 + self.same + sum(self.others)


SIX = Layout(same=1, others=(1, 1, 1, 1), query=389, option=86)


def _unified(options: int) -> Layout:
    """Return PPT's layout; the first of the other documents give one line more."""
    same = 1 if options < 7 else 2 if options < 11 else 3
    rest = options - 1 - same
    others = [rest // 4 + (place < rest % 4) for place in range(4)]
    query = {5: 400, 6: 300, 7: 250, 8: 200, 9: 200}.get(options, 400 if options < 5 else 150)
    option = 50 if options < 5 else 40 if options < 7 else 30 if options < 10 else 20
    return Layout(same, (others[0], others[1], others[2], others[3]), query, option)


UNIFIED = {options: _unified(options) for options in range(2, 17)}


def rows(case: Case) -> Iterator[dict[str, Any]]:
    """Yield a question of six options for each line, with its `limits` in tokens."""
    return _rows(case, SIX)


def unified_rows(case: Case) -> Iterator[dict[str, Any]]:
    """Yield a question for each line; the number of options is uniform over documents."""
    return _rows(case, UNIFIED[case.rng.choice(sorted(UNIFIED))])


def _rows(case: Case, layout: Layout) -> Iterator[dict[str, Any]]:
    for place, query in enumerate(case.document):
        options = _options(case, place, layout)
        order = case.rng.sample(range(len(options)), len(options))
        yield {
            "id": f"{case.number}-{place}",
            "query": query,
            "options": [options[drawn] for drawn in order],
            "answer": order.index(0),
            "limits": {"query": layout.query, "options": layout.option},
        }


def _options(case: Case, place: int, layout: Layout) -> list[str]:
    """Return the options, the right one first."""
    right = case.rng.choice(neighbours(case.document, place))
    same = case.rng.sample(apart(case.document, place), layout.same)
    options = [case.document[number] for number in (right, *same)]
    for document, count in zip(case.others, layout.others, strict=True):
        options += case.rng.sample(document, count)
    return options
