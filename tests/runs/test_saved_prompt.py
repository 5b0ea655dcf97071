"""A prompt that begins as another run's: taken whole, or refused with the reason."""

from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.folder.store import RunStore, bound_to, state_file
from ptrun.method.dept import DePT
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.multitask_prompt import MultitaskPrompt
from ptrun.method.prompt_lora import PromptLoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.method.residual_prompt import ResidualPrompt
from ptrun.start.saved_prompt import digest, find, follow, prompts
from tests.readings import reading, reads
from tests.small_runs import fitted, member, sst2, train_batch

V2 = partial(PTuningV2, length=3)
V2_MLP = partial(V2, reparameterization="mlp", hidden=8)
PT = partial(PromptTuning, length=3)
SLOTS = reads(PTuning, reading("verbalizer"))
RESIDUAL = partial(ResidualPrompt, length=3, hidden=8)
BOTH = partial(PromptLoRA, length=3, rank=2)
METHODS = {
    "dept": partial(DePT, length=3, rank=2),
    "multitask_prompt": partial(MultitaskPrompt, length=3),
    "residual_prompt": RESIDUAL,
    "prompt_lora": BOTH,
    "prompt_tuning": PT,
    "prompt_tuning_rescaled": partial(PT, rescale=100.0),
    "ptuning_v2": V2,
    "ptuning_v2_top": partial(V2, layers=[3, 3]),
    "ptuning_v2_mlp": V2_MLP,
    "ptuning": SLOTS,
    "ptuning_mlp": partial(SLOTS, encoder="mlp"),
    "ptuning_plain": partial(SLOTS, encoder="plain"),
}


class Silent:
    def log(self, row):
        pass


class World:
    """A tiny backbone, a task, and a folder where runs leave what runs leave."""

    def __init__(self, backbone, data_dir, folder):
        self.backbone, self.data_dir, self.folder = backbone, data_dir, folder
        self.bound = bound_to(backbone)

    def task(self, make):
        slots = "{~sentence} {soft:2} was {soft} {mask}"
        return sst2(
            self.data_dir, slots if getattr(make, "func", make) is SLOTS else "{~sentence} {mask}"
        )

    def fresh(self, make, seed=9):
        torch.manual_seed(seed)
        return make(self.backbone, self.task(make))

    def run(self, make, parts=("",)):
        """Train each part for some steps; keep state and prompt; return the methods."""
        store, methods = RunStore(self.folder, self.bound, Silent()), {}
        for seed, part in enumerate(parts):
            one = member(make, self.backbone, self.task(make), seed, store.part(part), max_steps=4)
            fitted([one])
            one.finish()
            methods[part] = one.method
        tensors = {
            (f"{part}/" if part else "") + name: tensor
            for part, method in methods.items()
            for name, tensor in method.exported().items()
        }
        store.write_prompt(tensors, {}, {})
        return methods

    def follow(self, make, parts=("",)):
        """Return fresh methods whose prompts begin as the run's."""
        methods = {part: self.fresh(make) for part in parts}
        follow(self.folder, methods, self.bound)
        return methods


@pytest.fixture
def world(tiny, data_dir, tmp_path):
    return World(tiny(), data_dir, tmp_path / "run")


def of_prompt(tensors):
    return {name: tensor for name, tensor in tensors.items() if name.startswith("prompt.")}


def heads(method):
    return {n: p for n, p in method.learned().items() if not n.startswith("prompt.")}


@pytest.mark.parametrize("make", METHODS.values(), ids=METHODS)
def test_the_prompt_is_the_other_runs_and_the_head_is_not(world, make):
    done, own = world.run(make)[""], world.fresh(make)
    started = world.follow(make)[""]
    for name, tensor in of_prompt(done.exported()).items():
        torch.testing.assert_close(started.exported()[name], tensor, atol=1e-6, rtol=0)
        assert not torch.allclose(own.exported()[name], tensor, atol=1e-3)
    for name, parameter in of_prompt(started.learned()).items():
        torch.testing.assert_close(parameter, done.learned()[name], atol=1e-6, rtol=1e-6)
    for name, parameter in heads(started).items():
        assert torch.equal(parameter, heads(own)[name])


@pytest.mark.parametrize("make", [V2_MLP, SLOTS], ids=["mlp", "lstm"])
def test_what_an_encoder_made_is_learned_on_with_the_encoder(world, make):
    """The gradient reaches every tensor of the encoder: nothing was folded."""
    world.run(make)
    method = world.follow(make)[""]
    batch = train_batch(method)
    for parameter in method.learned().values():
        parameter.requires_grad_(True)
    method.loss(world.backbone.forward(method.inputs(batch)), batch).backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in of_prompt(method.learned()).values())


def test_of_several_evaluations_the_selected_one_is_taken(world):
    done = world.run(V2_MLP)[""]
    file = state_file(world.folder)
    store = RunStore(world.folder, world.bound, Silent())
    tensors, plain = store.restore()
    spoilt = {n: t + 1 if n.startswith("learned.") else t for n, t in tensors.items()}
    store.draft(spoilt, plain)()
    assert file.is_file()
    started = world.follow(V2_MLP)[""]
    torch.testing.assert_close(started.prompt(), done.prompt())


def test_a_folded_prompt_starts_a_method_without_an_encoder(world):
    done = world.run(V2_MLP)[""]
    started = world.follow(V2)[""]
    assert torch.equal(started.prompt(), done.prompt())


@pytest.mark.parametrize("make", [V2_MLP, SLOTS], ids=["mlp", "lstm"])
def test_a_folded_prompt_without_its_encoder_is_refused(world, make):
    world.run(make)
    state_file(world.folder).unlink()
    with pytest.raises(UserError, match=r"state.safetensors is missing, which has the encoder"):
        world.follow(make)


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        (PT, V2, r"prompt.table is \[3, 32\] there and \[3, 192\] here"),
        (PT, partial(PT, length=4), r"is \[3, 32\] there and \[4, 32\] here. Give method.length"),
        (V2, partial(V2, layers=[1, 2]), r"is \[3, 192\] there and \[3, 128\] here"),
        (PT, BOTH, "that run learned prompt.table, this method learns prompt.lora"),
        (BOTH, PT, "that run learned prompt.lora"),
        (PT, RESIDUAL, "that run learned prompt.table, this method learns prompt.mlp.0.0.bias"),
        (V2, PT, "that run learned prompt.prefix, this method learns prompt.table"),
        (V2, V2_MLP, "that run learned prompt.table, this method learns prompt.mlp.0.bias"),
        (V2_MLP, partial(V2_MLP, hidden=9), r"prompt.mlp.0.* is \[8.* there and \[9.* here"),
        (PT, partial(FineTuning), "that run learned prompt.table, this method learns no prompt"),
        (partial(FineTuning), PT, "its method learned no prompt"),
    ],
)
def test_what_does_not_fit_is_explained_and_changes_nothing(world, there, here, message):
    world.run(there)
    methods = {"": world.fresh(here)}
    before = {n: p.detach().clone() for n, p in methods[""].learned().items()}
    with pytest.raises(UserError, match=message):
        follow(world.folder, methods, world.bound)
    assert all(torch.equal(p, before[n]) for n, p in methods[""].learned().items())


def test_another_backbone_is_refused(world, tiny):
    world.run(PT)
    with pytest.raises(UserError, match=r"made with backbone tiny_bert.*, not tiny_roberta"):
        prompts(world.folder, bound_to(tiny("roberta")))


@pytest.mark.parametrize("make", [SLOTS, METHODS["ptuning_plain"]], ids=["lstm", "plain"])
def test_each_part_begins_as_the_part_of_its_name(world, make):
    done = world.run(make, ("P19", "P20"))
    started = world.follow(make, ("P20", "P19"))
    for part, method in started.items():
        torch.testing.assert_close(method.prompt(), done[part].prompt())
    assert not torch.allclose(started["P19"].prompt(), started["P20"].prompt(), atol=1e-3)


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        (("P19", "P20"), ("",), r"the prompts \['P19', 'P20'\], this run learns \[''\]"),
        (("",), ("P19",), r"the prompts \[''\], this run learns \['P19'\]"),
        (("P19", "P20"), ("P19",), r"the prompts \['P19', 'P20'\], this run learns \['P19'\]\."),
    ],
)
def test_other_parts_are_refused(world, there, here, message):
    world.run(SLOTS, there)
    with pytest.raises(UserError, match=message):
        world.follow(SLOTS, here)


def test_a_run_is_found_by_folder_and_by_id_before_its_reruns(tmp_path):
    for name in ("runs/a", "other/a", "other/b", "reruns/b", "other/pt-s1-0123abcd"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "prompt.safetensors").touch()
    assert find(str(tmp_path / "other/a"), tmp_path, "runs") == tmp_path / "other/a"
    assert find("a", tmp_path, "runs") == tmp_path / "runs/a"
    assert find("b", tmp_path, "runs") == tmp_path / "other/b"
    assert find("0123abcd", tmp_path, "runs") == tmp_path / "other/pt-s1-0123abcd"
    with pytest.raises(UserError, match=r"start=run:a: several runs match\. Give one of "):
        find("a", tmp_path, "third")
    with pytest.raises(UserError, match="start=run:c: no finished run of this name has a prompt"):
        find("c", tmp_path, "runs")


def test_the_digest_is_of_the_prompt_alone():
    one = {"": {"prompt.table": torch.ones(2, 3), "prompt.b": torch.ones(1, dtype=torch.bfloat16)}}
    turned = {"": dict(reversed(one[""].items()))}
    assert digest(one) == digest(turned)
    other = {"": {**one[""], "prompt.table": torch.ones(3, 2)}}
    changed = {"": {**one[""], "prompt.table": torch.full((2, 3), 1 + 1e-6)}}
    assert len({digest(d) for d in (one, other, changed, {"P19": one[""]})}) == 4
