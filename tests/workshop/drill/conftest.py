"""One world of the drill for all its tests."""

import pytest

from workshop.drill.warm import Warm
from workshop.drill.world import World


@pytest.fixture(scope="package")
def world(tmp_path_factory):
    warm = Warm()
    yield World(tmp_path_factory.mktemp("drill").resolve() / "world", warm)
    warm.stop()
