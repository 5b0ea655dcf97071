"""The paper's two regimes and its manual prompts, each as one command."""

import json

import pytest
import torch
from safetensors.torch import load_file

from ptrun.config.compose import compose_run
from ptrun.config.schema import train_config
from ptrun.runs.launch import launch
from ptrun.training.optim import make_optimizer
from tests import conftest

RELATIONS = {"born_in", "has_job"}
SUPERGLUE = ["boolq", "cb", "copa", "multirc", "rte", "wic", "wsc"]
SEEN = ["Ann", "Bob", "a film", "the plot", "Oslo", "Rome"]
OWN = {
    "boolq": [
        {"question": "was it good", "passage": f"{seen} was good.", "label": i % 2}
        for i, seen in enumerate(SEEN)
    ],
    "cb": [
        {"premise": f"Ann saw {seen}.", "hypothesis": f"{seen} was in Oslo", "label": i % 3}
        for i, seen in enumerate(SEEN)
    ],
    "wic": [
        {"word": "saw", "sentence1": f"Bob saw {seen}.", "sentence2": "A saw.", "label": i % 2}
        for i, seen in enumerate(SEEN)
    ],
}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Return tiny models that know the label words as single tokens."""
    made = {}

    def folder(kind):
        if kind not in made:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(conftest, "WORDS", [*conftest.WORDS, "Yes", "No", "Maybe"])
                made[kind] = conftest.write_tiny(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return folder


@pytest.fixture
def superglue(data_dir):
    """Return a folder where six rows of each task are FewGLUE's and the task's own dev."""
    for name in SUPERGLUE:
        file = data_dir / name / "train.jsonl"
        lines = file.read_text().splitlines() if file.is_file() else map(json.dumps, OWN[name])
        rows = [{**json.loads(line), "id": f"{name}-{i}"} for i, line in enumerate(lines)]
        for place, own in (("fewglue", rows), ("superglue", rows)):
            (data_dir / place / name).mkdir(parents=True)
            for part in ("train", "validation"):
                kept = own[:-1] if (place, part) == ("fewglue", "validation") else own
                text = "".join(json.dumps(row) + "\n" for row in kept)
                (data_dir / place / name / f"{part}.jsonl").write_text(text)
    return data_dir


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [(name, ("bert", "albert")[i % 2]) for i, name in enumerate(SUPERGLUE)]
)
def test_the_few_shot_regime_runs_on_every_task(superglue, folder_of, tmp_path, kind, name):
    line = ["method=ptuning_fewglue", f"task={name}", "setting=fewglue", f"data_dir={superglue}"]
    line += [f"backbone.path={folder_of(kind)}", f"outputs={tmp_path / 'outputs'}"]
    line += ["train.max_steps=2", "train.batch_size=4", "train.eval_every=1"]
    done = launch(compose_run(line))
    assert done.status == "finished" and done.manifest["steps"] == 2
    learned = done.learned_parameters
    assert learned["prompt"] > 0 and learned["backbone"] > 0 and learned["head"] == 0
    taught = {"copa": 12, "wsc": 3}.get(name, 6)  # swapped copies; right examples alone
    assert done.manifest["answered"] == {"train": taught, "dev": 5, "test": 6, "left_out": 0}
    assert done.manifest["data"]["train"]["count"] == 6


def test_the_few_shot_regime_has_two_rates_and_decays_the_backbones_matrices():
    composed = compose_run(["method=ptuning_fewglue", "task=rte"])
    train = train_config(composed.config["train"])
    learned = {
        "prompt.table": torch.nn.Parameter(torch.zeros(1, 2)),
        "backbone.w": torch.nn.Parameter(torch.zeros(2, 2)),
        "backbone.bias": torch.nn.Parameter(torch.zeros(2)),
    }
    groups = make_optimizer(train, learned).param_groups
    by = {id(p): (train.lr * g["share"], g["weight_decay"]) for g in groups for p in g["params"]}
    slow = pytest.approx(1e-5)
    assert [by[id(p)] for p in learned.values()] == [(1e-4, 0.0), (slow, 0.1), (slow, 0.0)]
    assert (train.max_steps, train.eval_every, train.patience) == (3500, 20, 10)
    assert composed.config["method"]["hidden"] == "full"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pocket_bert", "pocket_gpt2", "pocket_t5", "pocket_glm"])
def test_the_lama_regime_learns_a_prompt_for_each_relation(tmp_path, name):
    """Two relations of the pocket world, in each family's own pattern; the backbone stays."""
    line = ["method=ptuning_lama", "task=pocket_facts", "task.relations=[born_in,has_job]"]
    line += ["task.vocabulary=objects", f"backbone={name}", f"outputs={tmp_path}"]
    done = launch(compose_run([*line, "train.epochs=1", "train.lr=5e-3"]))
    assert done.status == "finished" and set(done.manifest["parts"]) == RELATIONS
    assert done.manifest["backbone"]["frozen_verified"] is True
    for own in done.manifest["parts"].values():
        first, second = (row["step"] for row in own["history"])
        assert first == 0 and second == own["answered"]["train"] // 8  # the last batch is dropped
    (file,) = tmp_path.rglob("prompt.safetensors")
    vectors = 6 if name == "pocket_gpt2" else 9
    assert {len(t) for t in load_file(file).values()} == {vectors}
    assert len(load_file(file)) == len(done.manifest["parts"])
