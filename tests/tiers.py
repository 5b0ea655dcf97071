"""Which cases of a parametrized test the core suite runs; `make test-all` runs the others too."""

import pytest


def tiered(cases, core):
    """Return all cases; those for which `core(*values)` is false are marked slow."""
    return [_case(case, core) for case in cases]


def _case(case, core):
    values = case.values if hasattr(case, "values") and hasattr(case, "marks") else case
    values = values if isinstance(values, tuple | list) else (values,)
    name = getattr(case, "id", None)
    return pytest.param(*values, id=name, marks=[] if core(*values) else pytest.mark.slow)
