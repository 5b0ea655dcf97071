"""What passes between a launcher and its ranks: a configuration one way, errors the other.

YAML, because JSON would make text of a key that is a number.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from ptrun.config.compose import Composed


@dataclass(frozen=True)
class RankError:
    """The error that ended a rank: its class, its text, and when it came (seconds, wall clock)."""

    kind: str
    text: str
    at: float


def write(file: Path, composed: Composed) -> None:
    """Write a configuration for ranks."""
    file.write_text(yaml.safe_dump(asdict(composed), allow_unicode=True), encoding="utf-8")


def read(file: Path) -> Composed:
    """Return the configuration that a launcher wrote."""
    return Composed(**yaml.safe_load(file.read_text(encoding="utf-8")))


def write_error(folder: Path, rank: int, error: BaseException) -> None:
    """Leave word of the error that ends this rank."""
    told = RankError(type(error).__name__, str(error), time.time())
    draft = folder / f".rank{rank}"
    draft.write_text(json.dumps(asdict(told)), encoding="utf-8")
    draft.replace(folder / f"rank{rank}.json")


def read_error(folder: Path, rank: int) -> RankError | None:
    """Return the error that a rank left word of; None where it could not, or had none."""
    file = folder / f"rank{rank}.json"
    return RankError(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None
