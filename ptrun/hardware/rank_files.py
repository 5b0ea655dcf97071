"""Files between a launcher and its ranks: the configuration to the ranks, errors back.

The configuration is YAML, because JSON turns keys that are numbers into text.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from ptrun.config.compose import Composed


@dataclass(frozen=True)
class RankError:
    """The error that ended a rank: its class, text and time (seconds, wall clock)."""

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
    """Write the error that ends this rank."""
    record = RankError(type(error).__name__, str(error), time.time())
    draft = folder / f".rank{rank}"
    draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
    draft.replace(folder / f"rank{rank}.json")


def read_error(folder: Path, rank: int) -> RankError | None:
    """Return the error that a rank wrote, or None."""
    file = folder / f"rank{rank}.json"
    return RankError(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None
