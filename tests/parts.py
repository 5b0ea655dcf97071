"""The tests that need a part of ptrun whose folder is absent: left out, or skipped by name."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
_OTHERS = ("test_parts.py", "test_layers.py")  # which name the parts for what they are
ABSENT = [p for p in ("papers", "serve") if not (TESTS.parent / "ptrun" / p).is_dir()]
_NAMED = re.compile(rf"(ptrun|tests)[./]({'|'.join(ABSENT)})\b|experiment=" if ABSENT else r"(?!)")


def needing():
    """Return the files that name an absent part."""
    files = sorted(TESTS.rglob("test_*.py"))
    named = [file for file in files if _NAMED.search(file.read_text(encoding="utf-8"))]
    return [str(file) for file in named if file.name not in _OTHERS]


def skipping():
    """Skip a test in which a part turns out to be absent."""
    try:
        return (yield)
    except Exception as error:
        words = [f"ptrun.{part}" for part in ABSENT]
        words += ["model type 'blocklm'", "model type 'megatron'"] * ("papers" in ABSENT)
        if any(word in str(error) for word in words):
            pytest.skip(f"part: {', '.join(ABSENT)}")
        raise
