"""A short form of `make drill`: no damaged file gives a traceback or another answer."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))
import drill  # noqa: E402

sys.path.remove(str(FOLDER))
QUICK = ("journal, resume", "prompt, predict", "result, report")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return drill.World(tmp_path_factory.mktemp("drill").resolve())


KINDS = [
    kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in drill.KINDS
]


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_healed_or_refused_by_name(world, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts, bad = drill.drill(world, kind, places=3, seed=7)
    assert not bad and sum(counts.values()) == 3


def test_the_drill_sees_what_it_looks_for(tmp_path):
    """A judge that passes everything would find nothing."""
    file = tmp_path / "run" / "state.safetensors"

    def judged(code, err="", answer="a"):
        return drill.judged(drill.Called(code, "", err), answer, "a", file)

    assert judged(0) == "same" and judged(0, answer="b") == "wrong"
    assert judged(0, f"{file}: damaged", "b") == "healed" and judged("traceback") == "traceback"
    assert judged(1, f"{file}: damaged") == "refused" and judged(1, "damaged") == "unclear"
    assert judged("hang") == "lost" and judged(143) == "lost"
