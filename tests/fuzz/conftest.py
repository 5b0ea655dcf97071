"""Property tests: a few fixed examples each in the core, and many random ones in `make fuzz`."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

COMMON = {
    "deadline": None,  # a busy machine is no failure
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    "print_blob": True,
}
settings.register_profile("core", max_examples=8, derandomize=True, database=None, **COMMON)
settings.register_profile(
    "nightly",
    max_examples=int(os.environ.get("PTRUN_FUZZ_EXAMPLES", "1000")),
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    **COMMON,
)
settings.load_profile("core")  # `--hypothesis-profile=nightly` is applied after this


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Return a folder that all examples share; each writes its files anew."""
    return tmp_path_factory.mktemp("fuzz")
