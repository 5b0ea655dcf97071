"""Which cases of a test the core suite runs, and what a test needs beside the code."""

import os
import sys
from importlib.util import find_spec

import pytest


def package(name):
    """Skip a test without a package; fail where `make` has installed those of all tests."""
    if find_spec(name) is not None:
        return
    said = f"package: {name} is not installed"
    if os.environ.get("PTRUN_TEST_PACKAGES") and sys.platform == "linux":  # Triton has no others
        pytest.fail(said, pytrace=False)
    pytest.skip(said, allow_module_level=True)


def tiered(cases, core):
    """Return all cases; those for which `core(*values)` is false are marked slow."""
    return [_case(case, core) for case in cases]


def _case(case, core):
    values = case.values if hasattr(case, "values") and hasattr(case, "marks") else case
    values = values if isinstance(values, tuple | list) else (values,)
    name = getattr(case, "id", None)
    return pytest.param(*values, id=name, marks=[] if core(*values) else pytest.mark.slow)
