"""`method=ppt`: the prompt a run begins as is found, or learned on pairs of a corpus first."""

import json
import logging
from functools import partial
from threading import Thread
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ptrun.config.compose import compose_run
from ptrun.config.schema import train_config
from ptrun.errors import RunFailed, UserError
from ptrun.folder import lease, result, tensors
from ptrun.folder.digest import unpacked
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.runs.recipe import run
from ptrun.start.pretraining import task_for
from ptrun.training.member import Member
from tests.papers.ppt.corpora import document, write
from tests.readings import method_of, reading
from tests.small_runs import Memory, engine, sst2

STILL = ["train.lr=1e-12", "train.weight_decay=0", "train.max_steps=1"]
FEW = "{train: 16, validation: 4, test: 4}"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write(tmp_path_factory.mktemp("corpus"), [document(number) for number in range(60)])


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Return a folder with a few pairs of RTE, which asks in words of the pocket world."""
    root = tmp_path_factory.mktemp("data")
    (root / "superglue/rte").mkdir(parents=True)
    rows = [
        {"premise": f"It is {i}.", "hypothesis": "It is so.", "label": i % 2} for i in range(16)
    ]
    for split, own in (("train", rows[:12]), ("validation", rows[12:])):
        text = "".join(json.dumps(row) + "\n" for row in own)
        (root / "superglue/rte" / f"{split}.jsonl").write_text(text)
    return root


@pytest.fixture
def composed(tmp_path, corpus, few):
    """Compose a small run; what it learns first is smaller still."""
    made = [f"source.corpus={corpus}", f"source.examples={FEW}", "source.shares=[80,10,10]"]
    small = ["batch_size=4", "max_steps=2", "eval_every=2"]
    told = [f"outputs={tmp_path / 'outputs'}", f"data_dir={few}", "method.length=5"]

    def compose(task, *overrides, method="ppt", backbone="pocket_t5"):
        own = [*told, f"method={method}", f"backbone={backbone}"]
        if task.startswith("ppt_"):
            own += [f"task.{key}" for key in made] + [f"train.{key}" for key in small]
        else:
            own += [f"train.{key}" for key in small]
            own += [f"pretraining.task.{key}" for key in made]
            own += ["pretraining.readout.pattern=pocket"] * (method != "idpg" and "t5" in backbone)
            own += [f"pretraining.train.{key}" for key in small]
        return compose_run([*own, f"task={task}", *overrides])

    return compose


def table_of(folder):
    return load_file(folder / "prompt.safetensors")["prompt.table"]


def learned_first(outputs):
    return sorted(f.parent for f in (outputs / "pretraining").glob("*/result.json"))


@pytest.mark.slow
def test_a_prompt_is_learned_once_and_shared_by_seeds_rates_and_patterns(composed, tmp_path):
    """Nothing is learned with a rate of almost nothing, so the prompt is the one begun with."""
    one = composed("rte", *STILL)
    done = launch(one)
    (first,) = learned_first(tmp_path / "outputs")
    before = first.stat().st_mtime_ns
    torch.testing.assert_close(table_of(plan(one).folder), table_of(first), atol=1e-5, rtol=0)
    told = result.read(first)
    assert told.learned_parameters["head"] == 0 and told.names["task"] == "ppt_nsp"
    assert (table_of(first) - table_of(first)[0]).abs().max() > 1e-2, "no longer one vector"
    assert done.manifest["started_from"] == {
        "run_id": first.name,
        "prompt": told.manifest["prompt"],
    }
    assert told.manifest["started_from"] is None
    for others in (["seed=2"], ["data_seed=2"], ["train.lr=1e-11"], ["name=other"]):
        assert plan(composed("rte", *STILL, *others)).start.folder == first
    launch(composed("rte", *STILL, method="ppt_hybrid"))
    assert learned_first(tmp_path / "outputs") == [first] and first.stat().st_mtime_ns == before


@pytest.mark.slow
def test_made_or_found_the_run_is_the_same_to_the_bit(composed, tmp_path):
    one = composed("rte", "train.max_steps=3")
    made = launch(one)
    left = table_of(plan(one).folder)
    found = launch(composed("rte", "train.max_steps=3", "rerun=true"))
    assert torch.equal(table_of(plan(one).folder), left)
    assert made.manifest["prompt"] == found.manifest["prompt"]
    assert len(learned_first(tmp_path / "outputs")) == 1, "rerun repeats the run alone"


@pytest.mark.slow
def test_what_was_learned_by_hand_is_found_under_any_name(composed, tmp_path):
    by_hand = composed(
        "ppt_nsp", "readout.pattern=pocket", "name=table/4", method="ppt_pretraining"
    )
    first = launch(by_hand)
    planned = plan(composed("rte"))
    assert planned.needs[0].run_id == first.run_id
    assert planned.start.folder == tmp_path / "outputs/table/4" / first.run_id
    assert launch(planned.request).manifest["started_from"]["run_id"] == first.run_id
    assert not (tmp_path / "outputs/pretraining").exists()


@pytest.mark.slow
def test_what_shapes_the_prompt_names_it(composed):
    """Before anything is learned the run has its name, as of the run it will begin as."""
    same = plan(composed("rte"))
    assert not same.start.folder.exists()
    for change in ("train.lr=1", "task.source.seed=1", "seed=2", "start=normal:1", "train.clip=9"):
        other = plan(composed("rte", f"pretraining.{change}"))
        assert other.needs[0].run_id != same.needs[0].run_id, change
        assert other.run_id != same.run_id, change
    random = [plan(composed("rte", "start=random", f"pretraining.seed={s}")) for s in "12"]
    assert random[0].run_id == random[1].run_id, "what is not begun with names nothing"


@pytest.mark.parametrize(
    ("kind", "fields", "pattern", "given", "expected"),
    [
        ("classification", 2, "ppt_pt", "", "ppt_nsp"),
        ("choice", 2, "ppt_hybrid", "", "ppt_nss"),
        ("classification", 1, "ppt_unified", "", "ppt_unified"),
        ("choice", 1, "ppt_unified", "", "ppt_unified"),
        ("classification", 1, "ppt_pt", "ppt_nsp", "ppt_nsp"),
        ("tagging", 1, None, "pocket_multi", "pocket_multi"),
    ],
)
def test_the_task_says_what_is_learned_first(kind, fields, pattern, given, expected):
    answer = {"classification": "label", "choice": "option"}.get(kind)
    own = {"kind": kind, "answer": answer, "fields": ["text"] * fields}
    task = SimpleNamespace(name="own", fills_gap=False, **own)
    assert task_for(task, {"pattern": pattern}, given) == expected


def test_a_kind_that_ppt_has_nothing_for_is_named():
    task = SimpleNamespace(kind="tagging", answer="tags", name="own", fields=["text"])
    with pytest.raises(UserError, match=r"no pre-training task for tagging.*=pretrained:ppt_nsp"):
        task_for(task, {}, "")


@pytest.mark.parametrize(
    ("task", "overrides", "message"),
    [
        ("rte", ["start=pretrained:ppt_np"], "did you mean 'ppt_nsp'"),
        ("rte", ["pretraining.train.lrr=1"], "pretraining: .*lrr: unknown; did you mean"),
        (
            "pocket_pairs",
            ["pretraining.task.sorce=1"],
            "^pretraining.task.sorce: unknown; did you mean 'source'",
        ),
        ("rte", ["pretraining.train.lr=-1"], r"pretraining\.train\.lr is -1"),
        ("rte", ["pretraining.recipe=ptt"], "method=ptt: unknown; did you mean 'ppt"),
        ("rte", ["pretraining.recipe=ppt"], "cannot use start=pretrained"),
        ("ppt_nsp", ["readout.pattern=pocket"], "Type method=ppt_pretraining"),
    ],
)
def test_mistakes_are_named(composed, task, overrides, message):
    with pytest.raises(UserError, match=message):
        plan(composed(task, *overrides))


def test_a_prompt_of_another_length_is_refused_before_it_is_learned(composed, tmp_path):
    with pytest.raises(UserError, match=r"prompt.table is \[4, 128\] there and \[5, 128\] here"):
        launch(composed("rte", "pretraining.method.length=4"))
    assert not (tmp_path / "outputs/pretraining").exists()


def test_a_method_without_a_prompt_is_refused_before_anything_is_learned(tmp_path, few):
    told = ["method=manual_prompt", "task=rte", "backbone=pocket_t5", "start=pretrained"]
    told += [f"data_dir={few}", f"outputs={tmp_path / 'outputs'}"]
    with pytest.raises(UserError, match="start=pretrained: this method learns no prompt"):
        launch(compose_run(told))
    assert not (tmp_path / "outputs/pretraining").exists()


@pytest.mark.slow
def test_a_prompt_that_is_not_the_runs_own_is_refused(composed, tmp_path):
    launch(composed("rte", *STILL))
    (first,) = learned_first(tmp_path / "outputs")
    file = first / "prompt.safetensors"
    with safe_open(file, "pt") as opened:
        header = unpacked(opened.metadata())
    header.pop("digest")
    tensors.draft(file, {"prompt.table": table_of(first) + 1}, header)()
    with pytest.raises(UserError, match=r"damaged or edited, or of another run"):
        launch(composed("rte", *STILL, "seed=2"))


def test_a_failed_pretraining_is_told_as_such(composed):
    with pytest.raises(RunFailed, match=r"was not pre-trained: .*\n.*pretraining.train.lr="):
        launch(composed("rte", "pretraining.start=normal:3e38"))


@pytest.mark.slow
def test_two_at_once_learn_it_once(composed, tmp_path, caplog):
    """The second waits for the lease, and finds what the first left."""
    one = composed("rte", *STILL)
    caplog.set_level(logging.INFO, "ptrun")
    first = plan(one).needs[0]
    with lease.held(first.folder):
        waiting = Thread(target=launch, args=[one])
        waiting.start()
        made = run(first)
        while f"waiting for {first.run_id}" not in caplog.text and waiting.is_alive():
            waiting.join(0.05)
        assert waiting.is_alive()
        assert not plan(one).folder.exists()
    waiting.join()
    assert (
        result.read(plan(one).folder).manifest["started_from"]["prompt"] == made.manifest["prompt"]
    )
    assert "pre-training the prompt:" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "backbone", "overrides"),
    [
        ("ptuning_v2", "pocket_bert", []),
        ("ptuning_v2", "pocket_t5", ["readout=verbalizer", "readout.pattern=ppt_pt"]),
        ("idpg", "pocket_bert", ["method.order=4"]),
    ],
)
def test_any_prompt_can_be_pretrained(composed, method, backbone, overrides):
    """The first run's prompt or generator is taken over; the head has another width and is new."""
    own = ["start=pretrained:ppt_nsp", *overrides]
    if backbone == "pocket_bert":
        own.append("pretraining.readout.pattern=null") if method == "ptuning_v2" else None
    one = composed("rte", *own, *STILL, method=method, backbone=backbone)
    done = launch(one)
    planned = plan(one)
    first, second = (load_file(p.folder / "prompt.safetensors") for p in (*planned.needs, planned))
    prompts = [name for name in first if name.startswith("prompt.")]
    assert prompts and done.manifest["started_from"]["run_id"] == planned.needs[0].run_id
    for name in prompts:
        torch.testing.assert_close(second[name], first[name], atol=1e-6, rtol=0)
    fresh = plan(composed("rte", *overrides, *STILL, method=method, backbone=backbone))
    launch(fresh.request)
    without = load_file(fresh.folder / "prompt.safetensors")
    for name in set(second) - set(prompts):
        torch.testing.assert_close(second[name], without[name], atol=1e-6, rtol=0)
    assert any(not torch.allclose(second[name], without[name], atol=1e-4) for name in prompts)


@pytest.mark.parametrize("task", ["sentiment", "pairs", "topics", "choice"])
def test_the_presets_patterns_suit_the_pocket_tasks(task):
    composed = compose_run(["method=ppt", "backbone=pocket_t5", f"task=pocket_{task}"])
    for pattern in ("ppt_pt", "ppt_hybrid", "ppt_unified"):
        option, node = composed.readout
        read = composed.read_by(option, {**node, "pattern": pattern})
        method_of(read)  # refuses words that are not one token


@pytest.mark.slow
def test_32_examples_are_100_steps_with_16_evaluations_and_one_at_the_end(tiny, data_dir):
    train = train_config(compose_run(["method=ppt"]).config["train"])
    data, backbone = sst2(data_dir, "{~sentence} {mask}"), tiny("bert")
    method = PromptTuning(backbone, data, reading("verbalizer"), length=2, rescale=100.0)
    rows, dev = (data.load("train") * 6)[:32], data.load("dev")
    features = [method.encode(rows), method.encode(dev)]
    score = partial(data.score, examples=dev)
    one = Member(method, *features, score, data.metric, train, 1, Memory())
    fit = engine(backbone, 400)
    fit.place([method])
    fit.fit([one])
    assert one.step == 100
    assert [row["step"] for row in one.history] == [*range(6, 97, 6), 100]
