"""benchmarks/serving.py over the runs of the server's tests."""

from pathlib import Path

import pytest

from tests.serve.conftest import folder, runs, server

__all__ = ["folder", "runs", "server"]  # fixtures


@pytest.mark.slow
def test_a_server_is_measured(server, runs, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import serving

    names = [runs["lora"].id] * serving.PROMPTS
    way = serving.measured(server, "texts", names, 4, 2)
    first = serving.first_text(server, names)
    assert 0 < way["p50"] <= way["p99"] and way["rate"] > 0 and 0 < first < 60
    text = serving.page({"texts": {"ptrun serve": {**way, "first": first, "peak": 1.0}}}, 4)
    assert "| ptrun serve | " in text and " | 1.00 | " in text
