"""Whether two runs should be equal, whether they are, and where they part ways."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptrun.difference import answers, journal, tensors
from ptrun.difference.facts import Fact, same_configuration
from ptrun.run.find import Run

_ASKED = ("configuration", "seeds", "data")
_BESIDE = ("names", "data", "backbone", "start", "versions", "code", "machine")
_SHOWN = 5


@dataclass(frozen=True)
class Measured:
    """What two runs left, compared; None where a file is missing."""

    answers: answers.Answers | None
    tensors: tensors.Tensors | None
    journals: journal.Journals | None


def measured(a: Run, b: Run) -> Measured:
    """Compare what two runs left.

    Raises:
        UserError: a file is damaged.
    """
    return Measured(answers.compare(a, b), tensors.compare(a, b), journal.compare(a, b))


def verdict(a: Run, b: Run, found: Measured, facts: Sequence[Fact]) -> Iterator[str]:
    """Tell the verdict in a line or a few, the plainest first."""
    compared = _compared(a, b, found)
    same = same_configuration(a, b)
    apart = [what for what, equal in compared.items() if not equal]
    if not apart:
        asked = "" if same else f", though they differ in {_keys(facts)}"
        yield f"equal to the last bit{asked}: {', '.join(compared)}"
    elif same:
        yield f"SHOULD BE EQUAL AND ARE NOT: one configuration, but other {', '.join(apart)}"
        yield from _where(found)
        yield from _causes(facts)
    else:
        yield f"two runs, not one: they differ in {_keys(facts)}, and need not be equal"
    if missing := _missing(a, b):
        yield f"not compared: {'; '.join(missing)}"


def lacks(a: Run, b: Run, file: str) -> str:
    """Return which of the two has no file of a name; empty if both have it."""
    without = [name for name, run in (("A", a), ("B", b)) if not (run.folder / file).is_file()]
    return f"no {file} in {' and '.join(without)}" if without else ""


def _compared(a: Run, b: Run, found: Measured) -> dict[str, bool]:
    """Return what was compared, and whether it is equal."""
    told = {"metrics": a.result.metrics == b.result.metrics}
    if a.result.status != b.result.status:
        told["status"] = False
    if found.answers is not None:
        told["answers"] = found.answers.equal()
    if found.tensors is not None:
        told["learned tensors"] = not found.tensors.differing
    if found.journals is not None:
        told[f"rows of {journal.FILE}"] = found.journals.first is None
    return told


def _where(found: Measured) -> Iterator[str]:
    if found.journals and found.journals.first:
        yield f"  first difference in {journal.FILE}: {found.journals.first}"
    elif found.journals:
        yield f"  {journal.FILE} is the same throughout: they part ways after training"
    if found.tensors and found.tensors.differing:
        yield f"  learned tensors that differ: {_few(found.tensors.differing)}"


def _causes(facts: Sequence[Fact]) -> Iterator[str]:
    causes = [f"{fact.section} {fact.key}" for fact in facts if fact.section in _BESIDE]
    if causes:
        yield f"  what differs beside the configuration: {_few(causes)}"
    else:
        yield "  nothing that was recorded beside the configuration differs"


def _keys(facts: Sequence[Fact]) -> str:
    keys = [fact.key for fact in facts if fact.section in _ASKED]
    return _few(keys) if keys else "their ids"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _missing(a: Run, b: Run) -> list[str]:
    files = (answers.FILE, tensors.FILE, journal.FILE)
    return [told for file in files if (told := lacks(a, b, file))]
