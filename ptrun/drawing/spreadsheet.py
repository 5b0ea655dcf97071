"""Cells of CSV and TSV files, which spreadsheets read: some texts would be run as formulas."""

from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe(value: Any) -> Any:
    """Return a cell that a spreadsheet shows as it is: a formula begins with an apostrophe."""
    if not isinstance(value, str) or not value.startswith(_FORMULA) or _is_number(value):
        return value
    return f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text == text.strip()
