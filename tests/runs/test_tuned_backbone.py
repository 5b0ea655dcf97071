"""Runs over the backbone that another run tuned, and EFL from a head that tells entailment."""

import json
import logging

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ptrun.backbone.weights import Tuned, classifier_of
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.folder.digest import unpacked
from ptrun.method.fine_tuning import FineTuning
from ptrun.readout.base import collate
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.start.spec import Start
from ptrun.start.start import begin
from tests.conftest import EXTRA, SIZES, WORDS
from tests.families import PaperBackbone
from tests.readings import reading
from tests.small_runs import engine, sst2

NLI = ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]
STILL = ["train.lr=1e-12", "train.max_steps=1"]


def pairs_and_texts(root):
    """Write rows of two tasks, no two of one alike; return what runs on them are typed as."""
    pairs = [{"sentence1": w, "sentence2": "a film", "label": i % 3} for i, w in enumerate(WORDS)]
    texts = [{"sentence": word, "label": i % 2} for i, word in enumerate(WORDS)]
    for name, rows in (("cmnli", pairs), ("sst2", texts)):
        (root / name).mkdir()
        for i, split in enumerate(("train", "validation", "test")):
            lines = (json.dumps({"idx": j, **row}) for j, row in enumerate(rows[i::3]))
            (root / name / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return [f"outputs={root / 'outputs'}", f"data_dir={root}", "train.batch_size=4"]


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level(logging.INFO, "ptrun")


@pytest.fixture(scope="module")
def world(tiny_folder, tmp_path_factory):
    """Compose runs on a tiny backbone; the first has tuned it on pairs of three labels."""
    common = [*pairs_and_texts(tmp_path_factory.mktemp("tuned")), "train.max_steps=3"]

    def composed(*overrides, kind="bert"):
        return compose_run([f"backbone.path={tiny_folder(kind)}", *common, *overrides])

    first = composed("method=fine_tuning", "task=cmnli", "readout.pooler=trainable")
    return composed, plan(first), launch(first)


METHODS = {
    "prompt_tuning": ["method=prompt_tuning", "method.length=3"],
    "idpg": ["method=idpg", "method.hidden=8", "method.order=4"],
    "adapter": ["method=adapter"],
    "fine_tuning": ["method=fine_tuning"],
}


@pytest.mark.slow
@pytest.mark.parametrize("own", METHODS.values(), ids=METHODS)
def test_the_tuned_backbone_is_taken_and_the_head_is_new(world, own, caplog):
    composed, first, done = world
    second = composed(*own, "task=sst2", f"start=run:{done.run_id}", *STILL)
    result, planned = launch(second), plan(second)
    assert f"start=run:{done.run_id}: its backbone is used; prompt and head are new" in caplog.text
    theirs = load_file(first.folder / "prompt.safetensors")
    plain = composed(*own, "task=sst2", *STILL)
    untuned = plan(plain).backbone
    planned.backbone.load()
    untuned.load()
    pretrained = untuned.body()
    for name, parameter in planned.backbone.body().items():  # that run had a pooler of its own
        tuned = pretrained[name] if name.startswith("pooler.") else theirs[f"backbone.{name}"]
        assert torch.equal(parameter, tuned)
    launch(plain)
    ours, without = (load_file(plan(c).folder / "prompt.safetensors") for c in (second, plain))
    head = "readout.linear.weight"
    assert theirs[head].shape[0] == 3 and ours[head].shape[0] == 2
    assert torch.allclose(ours[head], without[head], atol=1e-6)
    assert result.run_id != plan(plain).run_id
    assert result.manifest["start_takes"] == "backbone"
    frozen = result.learned_parameters["backbone"] == 0
    assert frozen == (own != METHODS["fine_tuning"])
    assert result.manifest["backbone"]["frozen_verified"] == (True if frozen else None)


@pytest.mark.slow
def test_what_stands_over_a_tuned_backbone_is_bound_to_it(world):
    composed, first, done = world
    own = [*METHODS["prompt_tuning"], "task=sst2", *STILL]
    second = composed(*own, f"start=run:{done.run_id}")
    launch(second)
    with safe_open(plan(second).folder / "prompt.safetensors", "pt") as opened:
        weights = json.loads(unpacked(opened.metadata())["backbone"])["weights"]
    assert weights == f"{first.backbone.weights}+{plan(second).start.digest}"
    with pytest.raises(UserError, match="Use that backbone, or another run"):
        plan(composed(*own, f"start=run:{plan(second).run_id}"))
    with pytest.raises(UserError, match=r"that run tuned .*, not tiny_roberta.*Use that backbone"):
        plan(composed(*own, f"start=run:{done.run_id}", kind="roberta"))


def test_a_chain_takes_the_last(world):
    composed, _, done = world
    tuned = ["method=fine_tuning", "task=sst2"]
    second = launch(composed(*tuned, f"start=run:{done.run_id}"))
    third = plan(composed(*tuned, f"start=run:{second.run_id}"))
    third.backbone.load()
    theirs = load_file(third.start.folder / "prompt.safetensors")
    assert all(torch.equal(p, theirs[f"backbone.{n}"]) for n, p in third.backbone.body().items())


def test_efl_goes_on_from_the_head_of_a_run_on_entailment(world, caplog):
    composed, first, done = world
    own = ["method=efl", "task=sst2", f"start=run:{done.run_id}", *STILL]
    efl = composed(*own)
    launch(efl)
    theirs, ours = (load_file(p.folder / "prompt.safetensors") for p in (first, plan(efl)))
    for name in ("readout.linear.weight", "readout.dense.bias"):
        torch.testing.assert_close(ours[name], theirs[name], atol=1e-9, rtol=0)
    told = "the head starts from that run's: entailment against neutral, contradiction"
    assert told in caplog.text
    caplog.clear()
    other = composed(*own, "readout.pooler=none")
    launch(other)
    head = load_file(plan(other).folder / "prompt.safetensors")["readout.linear.weight"]
    assert head.shape[0] == 2 and "the head begins" not in caplog.text


def nli_model(tiny_folder, kind, folder):
    """Write a random three-class checkpoint of transformers, and return its model."""
    tokenizer = json.loads((tiny_folder(kind) / "tokenizer.json").read_text())
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=len(tokenizer["model"]["vocab"]),
        id2label=dict(enumerate(NLI)),
        **SIZES,
        **EXTRA.get(kind, {}),
    )
    torch.manual_seed(5)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    for name, parameter in model.named_parameters():
        norm = parameter.dim() == 1 and name.endswith("weight")
        parameter.data.normal_(mean=float(norm), std=0.3)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tiny_folder(kind) / name).read_bytes())
    return model


def described(data_dir):
    task = sst2(data_dir)
    task.descriptions = {"positive": "It was good."}
    return task


@pytest.mark.parametrize("kind", ["roberta", "bert"])
@torch.no_grad()
def test_efl_begins_with_the_probability_that_an_nli_model_gives(
    tiny_folder, data_dir, tmp_path, kind
):
    """Against the library's own model; any other head of that backbone is of the task's size."""
    model, task = nli_model(tiny_folder, kind, tmp_path), described(data_dir)
    backbone = PaperBackbone(name="nli", path=str(tmp_path), dtype="fp32")
    torch.manual_seed(1)
    method = FineTuning(backbone, task, reading("entailment"))
    backbone.load()
    engine(backbone).place([method])
    begin(Start("random"), {"": method}, {}, 1, lambda *_: [], {})
    batch = collate(method.encode(task.load("train")), None, torch.device("cpu"))
    ours = method.readout.scores(backbone.forward(method.inputs(batch)), batch).softmax(dim=1)
    types = {} if batch.types is None else {"token_type_ids": batch.types}
    logits = model(input_ids=batch.ids, attention_mask=batch.mask.long(), **types).logits
    torch.testing.assert_close(ours[:, 1], logits.softmax(dim=1)[:, 2], atol=1e-5, rtol=1e-5)
    assert float(ours[:, 1].std()) > 0.01
    own = FineTuning(backbone, task, reading("head", pooler="trainable"))
    assert own.readout.linear.weight.shape[0] == 2


def test_a_checkpoint_that_lacks_its_head_is_refused(tiny_folder, data_dir, tmp_path):
    nli_model(tiny_folder, "roberta", tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({n: t for n, t in load_file(file).items() if "out_proj" not in n}, file)
    backbone = PaperBackbone(name="nli", path=str(tmp_path), dtype="fp32")
    method = FineTuning(backbone, described(data_dir), reading("entailment"))
    with pytest.raises(UserError, match=r"its files lack linear\.bias; type readout.pooler=none"):
        begin(Start("random"), {"": method}, {}, 1, lambda *_: [], {})


def test_the_published_mnli_model_is_known_without_its_files():
    node = compose_run(["backbone=roberta_large_mnli"]).config["backbone"]
    known = classifier_of(PaperBackbone(**{k: v for k, v in node.items() if k[0] != "_"}))
    assert (known.labels, known.entailed, known.pooler) == (NLI, 2, "trainable")


def test_an_output_head_that_was_tuned_too_is_taken(tiny, tmp_path):
    """As where fine-tuning reads label words."""
    backbone, file = tiny("roberta"), tmp_path / "prompt.safetensors"
    moved = {n: p.detach() + 1 for n, p in backbone.body(head=True).items()}
    save_file({f"backbone.{n}": t for n, t in moved.items()}, file)
    Tuned(file, "0").put(backbone)
    assert all(torch.equal(p, moved[n]) for n, p in backbone.body(head=True).items())
    with pytest.raises(UserError, match=r"lacks lm_head\.bias, which was tuned"):
        Tuned(file, "0").put(tiny("bert"))
