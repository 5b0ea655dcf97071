"""Families with closed layers: what ptrun computes is what transformers computes by itself."""

import copy
import json
from dataclasses import replace

import pytest
import torch

import ptrun
from ptrun.backbone import proof
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.quantization import QuantizedLinear
from ptrun.errors import UserError
from ptrun.method.adapter import Adapter
from ptrun.method.base import check_pair
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.readout.base import collate
from tests.backbone import types
from tests.exporting.runs import moved
from tests.small_runs import conll03, sst2
from tests.tiers import tiered

KINDS = list(types.CLOSED)
SOME = {"bloom", "falcon_h1", "qwen3_next", "mpnet"}  # the others are slow tests


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = types.make(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return folder


@pytest.fixture(autouse=True)
def forgets(tmp_path, monkeypatch):
    """Keep no proof of one test for another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def read(folder, kind):
    return PretrainedBackbone(name=kind, path=str(folder), dtype="fp32")


def loaded(folder, kind):
    backbone = read(folder, kind)
    backbone.load()
    return backbone


def outputs(method, examples):
    """Return the batch of a method, and the hidden states that its head reads."""
    batch = collate(method.encode(examples), None, torch.device("cpu"))
    return batch, method.backbone.forward(method.inputs(batch)).hidden


def stock(body, words, vectors, batch):
    """Return the states that a batch reads, by transformers, each row alone behind the vectors."""
    states = []
    for row, columns in zip(batch.reads.rows, batch.reads.columns, strict=True):
        ids = batch.ids[row, : batch.lengths[row]]
        embeddings = torch.cat([vectors, words(ids)])[None]
        if body.config.model_type == "falcon_h1":  # it scales words, and no embeddings
            embeddings = embeddings * body.config.embedding_multiplier
        states.append(body(inputs_embeds=embeddings)[0][0, len(vectors) + columns])
    return torch.stack(states)


def reference(folder, kind):
    return types.AUTO[types.group_of(kind)].from_pretrained(folder, dtype=torch.float32).eval()


@pytest.mark.parametrize("kind", tiered(KINDS, SOME.__contains__))
def test_input_vectors_and_lora_are_those_of_transformers(folder_of, kind, data_dir):
    """The states, the gradient of the vectors, and LoRA as merged weights."""
    folder, task = folder_of(kind), conll03(data_dir)
    backbone = loaded(folder, kind)
    assert backbone.architecture.closed and all(c.passed for c in proof.prove(backbone))
    method = moved(lambda *parts: PromptTuning(*parts, length=3), backbone, task)
    batch, states = outputs(method, task.load("train"))
    model = reference(folder, kind)
    vectors = method.exported()["prompt.table"].clone().requires_grad_()
    words = model.get_input_embeddings()
    expected = stock(model.base_model, words, vectors, batch)
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-5)
    weights = torch.randn_like(states)
    (states * weights).sum().backward()
    (expected * weights).sum().backward()
    slopes = method.prompt.table.grad / method.prompt.rescale
    torch.testing.assert_close(slopes, vectors.grad, rtol=1e-3, atol=1e-4)
    lora = moved(lambda *parts: LoRA(*parts, rank=2, alpha=4), backbone, task)
    batch, states = outputs(lora, task.load("train"))
    merged = copy.deepcopy(model)
    merged.load_state_dict({**model.state_dict(), **lora.merged()})
    none = vectors.new_empty(0, vectors.shape[1])
    torch.testing.assert_close(
        states, stock(merged.base_model, words, none, batch), rtol=1e-3, atol=1e-4
    )


def test_a_prefix_is_refused_with_the_methods_that_fit(folder_of, data_dir):
    backbone, task = loaded(folder_of("bloom"), "bloom"), sst2(data_dir)
    says = (
        r"PTuningV2 puts keys .* in bloom0 they cannot enter: .* Use prompt_tuning, ptuning or lora"
    )
    with pytest.raises(UserError, match=says):
        check_pair(PTuningV2, "head", {}, backbone, task)
    mamba = read(folder_of("mamba"), "mamba")
    with pytest.raises(
        UserError, match="Adapter stands behind the one feed-forward part of a layer"
    ):
        check_pair(Adapter, "head", {}, mamba, task)
    inputs = proof._rows(backbone, (4, 4))
    with pytest.raises(UserError, match="a prefix cannot enter the layers of BloomForCausalLM"):
        backbone.forward(replace(inputs, prefixes=(None, None)))


@pytest.mark.parametrize(
    ("kind", "layout", "refused"),
    [
        ("bloom", "houlsby", False),
        ("falcon_h1", "pfeiffer", False),
        ("falcon_h1", "houlsby", True),
    ],
)
def test_adapters_stand_behind_parts_that_a_layer_has_once(
    folder_of, data_dir, kind, layout, refused
):
    backbone, task = loaded(folder_of(kind), kind), conll03(data_dir)

    def make(*parts):
        return Adapter(*parts, layout=layout, hidden=4)

    if refused:
        with pytest.raises(UserError, match=r"falcon_h10 do not .* Type method.layout=pfeiffer\."):
            make(backbone, task)
        return
    method = moved(make, backbone, task)
    outputs(method, task.load("train"))[1].sum().backward()
    assert all(
        float(p.grad.abs().max()) > 0 for p in method.learned().values() if p.grad is not None
    )
    moved_by = {name for name, p in method.learned().items() if p.grad is None}
    assert moved_by == {name for name in method.learned() if name.startswith("readout")}


def test_a_run_writes_for_rows_of_any_length(folder_of, tmp_path):
    rows = [{"text": "a good film " * i + "bad", "answer": "yes"} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = ptrun.run(
        *("method=prompt_tuning", "method.length=3", f"backbone.path={folder_of('mamba')}"),
        *(
            "task=csv",
            f"task.train={tmp_path / 'rows.jsonl'}",
            f"task.test={tmp_path / 'rows.jsonl'}",
        ),
        *(
            "task.text=text",
            "task.answer=answer",
            "train.max_steps=2",
            "readout.max_new_tokens=6",
            "hardware=cpu",
        ),
        f"outputs={tmp_path / 'outputs'}",
    )
    texts = [{"text": row["text"]} for row in rows[1:4]]
    each = [run.predict([row])[0]["prediction"] for row in texts]
    assert [line["prediction"] for line in run.predict(texts)] == each


def test_maps_whose_weights_are_read_past_the_module_keep_their_precision(folder_of, data_dir):
    backbone, task = read(folder_of("mamba"), "mamba"), conll03(data_dir)
    backbone.quantize("int8")
    backbone.load()  # with its proof
    kinds = {name: type(module) for name, module in backbone.model.named_modules()}
    quantized = {name.rpartition(".")[2] for name, kind in kinds.items() if kind is QuantizedLinear}
    assert quantized == {"in_proj"}
    with pytest.raises(UserError, match=r"method.targets has x_proj, .* allowed: in_proj\."):
        LoRA(backbone, task, targets=["x_proj"])


def test_positions_begin_after_the_padding_index(folder_of):
    backbone = read(folder_of("mpnet"), "mpnet")
    assert backbone.config["max_position_embeddings"] == 64 and backbone.shape.positions == 62


def test_a_model_whose_code_stops_is_refused_by_name(tmp_path):
    folder = types.make("xlnet", tmp_path / "xlnet")  # its states are [T, B, H]
    with pytest.raises(UserError, match="XLNetLMHeadModel cannot read a few tokens with a prompt"):
        loaded(folder, "xlnet")
