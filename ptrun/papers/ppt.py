"""Examples made from a corpus without labels: the data on which PPT pre-trains prompts.

The corpus is read as a stream, document by document, until a split has the requested number of
examples. The seed and the corpus determine every example, so a resumed run makes the same ones.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ptrun.papers.corpus import SPLITS, Case, Document, MadeExamples, Need, cases, part_of

_LOG = logging.getLogger(__name__)


# Next-sentence prediction (PPT, sentence pairs): neighbours, lines of one text, or neither.

PAIRS_NEED = Need(lines=5, characters=5, words=5, others=1)
LABELS = ("no", "maybe", "yes")
_RATIO = 100  # largest ratio of the two lengths in characters


def pair_rows(case: Case) -> Iterator[dict[str, Any]]:
    """Yield a pair for each line; the three labels are equally likely.

    The second line is from another document (`no`), from the same document but no neighbour
    (`maybe`), or a neighbour (`yes`). The paper says the next line; its code also takes the
    previous one.
    """
    for place, first in enumerate(case.document):
        label = LABELS[case.rng.randrange(len(LABELS))]
        if label == "no":
            second = case.rng.choice(case.others[0])
        else:
            places = (apart if label == "maybe" else neighbours)(case.document, place)
            second = case.document[case.rng.choice(places)]
        if 1 / _RATIO <= len(first) / len(second) <= _RATIO:
            yield {"id": f"{case.number}-{place}", "first": first, "second": second, "label": label}


def neighbours(document: list[str], place: int) -> list[int]:
    """Return the places before and after a place."""
    return [near for near in (place - 1, place + 1) if 0 <= near < len(document)]


def apart(document: list[str], place: int) -> list[int]:
    """Return the places that are neither this one nor its neighbours."""
    return [far for far in range(len(document)) if abs(far - place) > 1]


# Next-sentence selection (PPT) from six lines or, in the unified format, from 2 to 16.
#
# One option is a neighbour of the query. Some are other lines of the same document, and the rest
# are lines of four other documents.

SELECTION_NEEDS = Need(lines=5, characters=10, words=5, others=4)
UNIFIED_NEED = Need(lines=6, characters=10, words=5, others=4)


@dataclass(frozen=True)
class SelectionLayout:
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


SIX = SelectionLayout(same=1, others=(1, 1, 1, 1), query=389, option=86)


def _unified(options: int) -> SelectionLayout:
    """Return PPT's layout; the first of the other documents give one line more."""
    same = 1 if options < 7 else 2 if options < 11 else 3
    rest = options - 1 - same
    others = [rest // 4 + (place < rest % 4) for place in range(4)]
    query = {5: 400, 6: 300, 7: 250, 8: 200, 9: 200}.get(options, 400 if options < 5 else 150)
    option = 50 if options < 5 else 40 if options < 7 else 30 if options < 10 else 20
    return SelectionLayout(same, (others[0], others[1], others[2], others[3]), query, option)


UNIFIED = {options: _unified(options) for options in range(2, 17)}


def selection_rows(case: Case) -> Iterator[dict[str, Any]]:
    """Yield a question of six options for each line, with its `limits` in tokens."""
    return _rows(case, SIX)


def unified_rows(case: Case) -> Iterator[dict[str, Any]]:
    """Yield a question for each line; the number of options is uniform over documents."""
    return _rows(case, UNIFIED[case.rng.choice(sorted(UNIFIED))])


def _rows(case: Case, layout: SelectionLayout) -> Iterator[dict[str, Any]]:
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


def _options(case: Case, place: int, layout: SelectionLayout) -> list[str]:
    """Return the options, the right one first."""
    right = case.rng.choice(neighbours(case.document, place))
    same = case.rng.sample(apart(case.document, place), layout.same)
    options = [case.document[number] for number in (right, *same)]
    for document, count in zip(case.others, layout.others, strict=True):
        options += case.rng.sample(document, count)
    return options


_LOG_EVERY = 10.0  # seconds

Maker = Callable[[Case], Iterator[dict[str, Any]]]
MAKERS: Mapping[str, tuple[Need, Maker]] = {
    "nsp": (PAIRS_NEED, pair_rows),
    "nss": (SELECTION_NEEDS, selection_rows),
    "unified": (UNIFIED_NEED, unified_rows),
}


@dataclass(frozen=True, kw_only=True)
class Construction(MadeExamples):
    """Pairs or questions made of lines; the splits share no document.

    `make` is `nsp`, `nss` or `unified`; the seed determines every draw, and PPT's is 233.
    """

    make: Literal["nsp", "nss", "unified"]
    seed: int = 233

    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows that the corpus gives for a split."""
        need, maker = MAKERS[self.make]
        seed = f"{self.seed}:{self.make}:{split}"
        usable = self._usable(split, need)
        return (row for case in cases(usable, need.others, seed) for row in maker(case))

    def none(self, split: str) -> str:
        """Return the error message for a split without examples."""
        need, _ = MAKERS[self.make]
        return (
            f"no example for {split}: {self.make} needs more than {need.others} documents in this "
            f"split, each of {need.lines} lines or more, each line of {need.words} words or more.\n"
            "Type task.source.unit=sentence, or task.source.shares=[80,10,10], or give a larger "
            "corpus."
        )

    def _usable(self, split: str, need: Need) -> Iterator[Document]:
        part, used, logged = SPLITS.index(split), 0, time.monotonic()
        for number, document in enumerate(self.documents(), start=1):
            if time.monotonic() - logged > _LOG_EVERY:
                logged = time.monotonic()
                _LOG.info("%s %s: %d documents read, %d used", self.make, split, number, used)
            if part_of(document, self.shares) == part and need.met(document):
                used += 1
                yield document
