"""The keys of `result.json`, from the record that is written."""

from options import of_dataclass

from ptrun.types import RunResult


def result() -> str:
    """Return the keys of `result.json`, with type and meaning."""
    return of_dataclass(RunResult, "")
