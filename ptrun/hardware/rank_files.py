"""Files between a launcher and its ranks: the configuration to the ranks, errors back.

The configuration is YAML, because JSON turns keys that are numbers into text.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ptrun.config import plain_yaml
from ptrun.config.compose import Composed


@dataclass(frozen=True)
class RankError:
    """The error that ended a rank: its class, text and time (seconds, wall clock)."""

    kind: str
    text: str
    at: float


def text_of(composed: Composed) -> str:
    """Return a configuration as text."""
    return plain_yaml.dump(asdict(composed))


def read_text(text: str) -> Composed:
    """Return the configuration of a text."""
    return Composed(**plain_yaml.load(text))


def write(file: Path, composed: Composed) -> None:
    """Write a configuration for ranks."""
    file.write_text(text_of(composed), encoding="utf-8")


def read(file: Path) -> Composed:
    """Return the configuration that a launcher wrote."""
    return read_text(file.read_text(encoding="utf-8"))


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
