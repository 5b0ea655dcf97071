"""The verdict on two runs: whether they should be equal, and where they differ first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ptrun.difference import answers, journal, tensors
from ptrun.difference.facts import Fact, same_configuration
from ptrun.folder.find import Run
from ptrun.folder.header import PROMPT

_CONFIGURED = ("configuration", "seeds", "data")
_BESIDE = ("names", "data", "backbone", "start", "versions", "code", "machine")
_SHOWN = 5


@dataclass(frozen=True)
class Measured:
    """The compared files of two runs; None if a file is missing."""

    predictions: answers.Predictions | None
    tensors: tensors.Tensors | None
    journals: journal.Journals | None


def measured(a: Run, b: Run) -> Measured:
    """Return the comparison of the files of two runs.

    Raises:
        UserError: a file is damaged.
    """
    return Measured(answers.compare(a, b), tensors.compare(a, b), journal.compare(a, b))


def verdict(a: Run, b: Run, found: Measured, facts: Sequence[Fact]) -> Iterator[str]:
    """Yield the lines of the verdict, the conclusion first."""
    compared = _compared(a, b, found)
    same = same_configuration(a, b)
    unequal = [name for name, equal in compared.items() if not equal]
    if not unequal:
        though = "" if same else f", though they differ in {_keys(facts)}"
        yield f"equal to the last bit{though}: {', '.join(compared)}"
    elif same:
        yield f"SHOULD BE EQUAL AND ARE NOT: one configuration, but different {', '.join(unequal)}"
        yield from _where(found)
        yield from _causes(facts)
    else:
        yield f"different configurations: they differ in {_keys(facts)}, so the results may differ"
    files = (answers.FILE, PROMPT, journal.FILE)
    if missing := [line for file in files if (line := lacks(a, b, file))]:
        yield f"not compared: {'; '.join(missing)}"


def lacks(a: Run, b: Run, file: str) -> str:
    """Return which run lacks a file; empty if both have it."""
    without = [name for name, run in (("A", a), ("B", b)) if not (run.folder / file).is_file()]
    return f"no {file} in {' and '.join(without)}" if without else ""


def _compared(a: Run, b: Run, found: Measured) -> dict[str, bool]:
    equal = {"metrics": a.result.metrics == b.result.metrics}
    if a.result.status != b.result.status:
        equal["status"] = False
    if found.predictions is not None:
        equal["predictions"] = found.predictions.equal()
    if found.tensors is not None:
        equal["learned tensors"] = not found.tensors.differing
    if found.journals is not None:
        equal[f"rows of {journal.FILE}"] = found.journals.first is None
    return equal


def _where(found: Measured) -> Iterator[str]:
    if found.journals and found.journals.first:
        yield f"  first difference in {journal.FILE}: {found.journals.first}"
    elif found.journals:
        yield f"  {journal.FILE} is equal: the runs differ only after training"
    if found.tensors and found.tensors.differing:
        yield f"  learned tensors that differ: {_few(found.tensors.differing)}"


def _causes(facts: Sequence[Fact]) -> Iterator[str]:
    causes = [f"{fact.section} {fact.key}" for fact in facts if fact.section in _BESIDE]
    if causes:
        yield f"  differences outside the configuration: {_few(causes)}"
    else:
        yield "  no recorded difference outside the configuration"


def _keys(facts: Sequence[Fact]) -> str:
    keys = [fact.key for fact in facts if fact.section in _CONFIGURED]
    return _few(keys) if keys else "their ids"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
