"""The page and the pictures of `claims_real.py`."""

from pathlib import Path


def write_page(name: Path, stored: list[dict], rows: int) -> None:
    """Write NAME.md and NAME.svg."""
