"""Answers found in rounds: masks filled one by one, whoever shares the passes."""

import pytest

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.readout.verbalizer import Fill
from tests.readings import reading
from tests.readout.reading import answers, renamed, task


def method(backbone, data, **keys):
    return ManualPrompt(backbone, data, reading("verbalizer", **keys))


CELLS = [("bert", "copa", "pet"), ("bert", "wsc", "pet")]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name", "pattern"), CELLS)
def test_batches_order_and_company_change_no_answer(
    tiny, data_dir, monkeypatch, kind, name, pattern
):
    """Examples need different numbers of rounds; a second member shares every pass."""
    monkeypatch.setattr(Fill, "judged", lambda self, named, noun: str(named))
    data, backbone = task(name, data_dir), tiny(kind)
    one, two = (method(backbone, data, pattern=pattern) for _ in range(2))
    examples = renamed(data.load("train"), 12)
    features = one.encode(examples)
    counts = {len(row.reads) for f in features for row in f.rows}
    whole = answers(backbone, [one], [features], 10_000)[0]
    assert len(counts) > 1 and len(set(whole)) > 1
    assert answers(backbone, [one], [features[::-1]], 1)[0] == whole[::-1]
    shared = answers(backbone, [one, two], [features, features[3:][::-1]], 300)
    assert shared == [whole, whole[3:][::-1]]


def test_choices_are_spelled_as_the_pattern_lists_them(tiny, data_dir):
    """COPA, P-tuning section 2b: no full stop at the end, a small first letter."""
    data = task("copa", data_dir)
    reads = method(tiny(), data, pattern="pet").readout
    words = reads.encode(data.load("train")[:1], 64)[0].facts["words"][0]
    assert reads.backbone.tokenizer().decode(words) == "the wind blew"
