"""`workshop.presets` asks every preset's repository, downloads nothing, and says what differs."""

import pytest

from tests.hub import test_tasks
from tests.hub.shapes import PICKLE, TENSORS
from tests.hub.test_presets import NODES, serve
from workshop import presets


@pytest.fixture
def page(hub, monkeypatch, capsys):
    """Return what prints the page for some presets, whose parameters are those of tiny files."""

    def asked(*backbones, tasks=(), parameters=None, **changed):
        nodes = {}
        for name in backbones:
            _, files = serve(hub, name, **changed.get(name, {}))
            size = len(files.get(TENSORS) or files.get(PICKLE) or b"")
            nodes[name] = NODES[name] | {"parameters": parameters or size // 4}
        for name in tasks:
            test_tasks.serve(hub, name)
        rows = {name: test_tasks.TASKS[name] for name in tasks}
        monkeypatch.setattr(presets, "presets", {"backbone": nodes, "task": rows}.get)
        hub.requests.clear()
        presets.main([])
        assert not any(one.sent for one in hub.requests), "only lists of files"
        text = capsys.readouterr().out
        return {line.split()[1]: line for line in text.splitlines() if line[:4].strip()}, text

    return asked


def test_formats_files_and_sizes_are_printed(page, hub):
    lines, text = page("t5_v1_1_base", "bert_base_cased", tasks=("boolq", "sst2"))
    commit = hub.repos["models", "google/t5-v1_1-base"].refs["main"][:8]
    assert f"google/t5-v1_1-base@{commit}, 1 .bin, converted once" in lines["t5_v1_1_base"]
    assert "spiece.model" in lines["t5_v1_1_base"] and " GB" in lines["t5_v1_1_base"]
    assert "1 safetensors" in lines["bert_base_cased"]
    assert "files of data (parquet)" in lines["boolq"] and "(jsonl)" in lines["sst2"]
    assert "4 of 4 repositories are as ptrun expects them" in text


def test_a_repository_that_does_not_answer_is_named_with_the_remedy(page, hub):
    hub.gated["google-bert/bert-base-cased"] = "right"
    lines, text = page("bert_base_cased", tasks=("trec",))
    assert lines["bert_base_cased"].startswith("BAD ") and "gated" in lines["bert_base_cased"]
    assert "hf auth login" in text and lines["trec"].startswith("ok ")


def test_every_preset_of_the_hub_is_asked():
    assert len(presets.presets("backbone")) == 67
    assert presets.presets("task").keys() == test_tasks.TASKS.keys()
    assert presets.presets("backbone").keys() > NODES.keys()
