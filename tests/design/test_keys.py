"""A key of a configuration changes something that is computed, or is refused, or is in no id.

Each key has a witness: options in which another value of it changes a loss, an answer or what is
saved. A key without a witness fails, so a new key needs one here.
"""

import inspect
import json
from dataclasses import fields
from pathlib import Path

import pytest
from safetensors.torch import load_file

from ptrun.config.components import component, shipped
from ptrun.config.compose import compose_run
from ptrun.config.schema import TrainConfig
from ptrun.errors import UserError
from ptrun.readout.choose import READINGS
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from tests.small_runs import reserving
from tests.tiers import tiered

ROWS = Path(__file__).parents[1] / "data"
FOLDERS = {"lama": "lama_trex", **{name: f"superglue/{name}" for name in ("copa", "wsc", "rte")}}
WORDS = "words: {negative: [bad], positive: [good]}"
ENTAILS = "words: {entailment: [good], not_entailment: [bad]}"
PATTERNS = {  # in the words of the tiny vocabularies
    "said": f"{{pattern: '{{sentence}} was {{mask}}', {WORDS}}}",
    "first": f"{{pattern: '{{mask}} film {{sentence}}', {WORDS}}}",
    "soft": f"{{pattern: '{{sentence}} {{soft:2}} {{mask}}', {WORDS}}}",
    "listed": f"{{pattern: '{{sentence}} {{words|commas}}.', {WORDS}}}",
    "ended": f"{{pattern: '{{sentence}} the {{words|commas}}.', {WORDS}}}",
    "fact": "{pattern: '{sub_label} in {mask}'}",
    "asked": "{pattern: '{soft:2} {sub_label} {mask}'}",
    "template": "{pattern: '{template|fact_start}'}",
    "text": "{pattern: '{premise} {question} {masks}'}",
    "gap": "{pattern: '{marked} {masks}'}",
    "pair": f"{{pattern: '{{premise}} || {{hypothesis}} {{masks}}', rule: mean, {ENTAILS}}}",
}
CHAT = ("chat_template", "turns", "thinking", "system", "date")
TOLD = ["method=prompt_tuning", "task=pocket_writing", "backbone.path=llama", "train.lr=0.1"]
TOLD += ["+task.source.rows={train: 8, validation: 4, test: 4}", "readout.max_new_tokens=12"]
TOLD += ["task.pvps={told: {pattern: '{facts} {mask}'}, other: {pattern: 'the {facts} {mask}'}}"]
DRAWN = [*TOLD, "readout.temperature=1.0"]
SEVERAL = ["task=pocket_two_topics", "+task.source.rows={train: 8, validation: 4, test: 4}"]
SEVERAL += [
    "task.pvps={said: {pattern: '{text} is {mask}', rule: first, words: {work: [dull], "
    "family: [bright], friend: [film], home: [plot], school: [saw], trade: [good], match: "
    "[bad], book: [was], none: [it]}}}"
]
ABOUT = "the film was good"
TAUGHT = [*TOLD, "readout=distillation", f"readout.document={ABOUT}"]
STUDIED = [*TAUGHT, "readout.self_study=6", "readout.chunk=8"]
STOOD = ["method=cartridge", *TAUGHT[1:], "method.length=4"]
STOOD_RANDOM = [*STOOD, "start=random", "method.frozen_vectors=0"]
FIVE = ["dull", "bright", "film", "plot", "saw"]


def pvps(*names):
    return "task.pvps={" + ", ".join(f"{name}: {PATTERNS[name]}" for name in names) + "}"


def on(base, typed):
    """Return witnesses that share their options: `KEY=VALUE KEY=VALUE`."""
    return {key: (base, value) for key, value in (one.split("=", 1) for one in typed.split())}


SST2 = ["task=sst2", pvps("said", "first")]
SAID = [*SST2, "readout.pattern=said"]
SKEWED = ["setting=sample_size", "setting.n=5"]
FT, SAY = ["method=fine_tuning"], ["method=fine_tuning", "readout=verbalizer"]
COPA = [*SAY, "task=copa", pvps("text"), "readout.pattern=text"]
T5 = [*SAY, *SAID, "backbone.path=t5"]
DPT = ["method=dpt", "task=sst2", "backbone.path=electra", pvps("listed", "ended")]
DPT += ["readout.pattern=listed"]
PASSAGE = ["method=dpt", "task=quoref", "backbone.path=electra"]
WITNESSES = {
    "HeadReading": {
        "pooler": (SST2, "mean"),
        "dropout": ([*SST2, *FT], "0.5"),
        "literal_sep": (["task=srl_up_de", "backbone.path=roberta"], "true"),
        "longest_answer": (["task=squad", "train.lr=1e-6"], "1"),
        "class_weights": ([*SST2, *SKEWED], "balanced"),
        "thresholds": (SEVERAL, "each"),
    },
    "EntailmentReading": on(["readout=entailment", *SST2], "pooler=mean dropout=0.5"),
    "VerbalizerReading": {
        **on([*SAY, *SAID], "pattern=first among=vocabulary"),
        **on(T5, "closed=true sentinel=false"),
        **on(COPA, "objective=softmax swapped=true"),
        "scored": ([*COPA, "readout.objective=as_scored"], "mean"),
        "random_masks": ([*SAY, "task=wsc", pvps("gap"), "readout.pattern=gap"], "true"),
        "literal_sep": (
            [*SAY, "task=rte", pvps("pair"), "readout.pattern=pair", "backbone.path=roberta"],
            "true",
        ),
        "shifted_label": (
            [*SAY, "task=lama", "backbone.path=llama", pvps("fact"), "readout.pattern=fact"],
            "true",
        ),
        "released_query": ([], "tests/readout/test_facts.py"),
        "class_weights": ([*SAY, *SAID, *SKEWED], "balanced"),
        "thresholds": ([*SAY, *SEVERAL, "readout.pattern=said"], "each"),
    },
    "ClassWordsReading": {
        **on(DPT, "pattern=ended direction=sigma bias=true loss=sum"),
        **on(PASSAGE, "threshold=0.2 threshold_on=one_minus_sigma"),
        "class_weights": ([*DPT, *SKEWED], "balanced"),
    },
    "WritingReading": {
        **on(
            TOLD,
            "pattern=other loss_on=all max_new_tokens=3 write_every=1 beams=3 temperature=1.0 "
            "repetition_penalty=0.1 stop=[a,e,i,o,s]",
        ),
        **on(DRAWN, "top_k=1 top_p=0.1 draw=1"),
        **on([], "length_penalty=tests/readout/test_writing.py"),
        **dict.fromkeys(CHAT, ([], "tests/readout/test_chat.py")),
    },
    "DistillationReading": {
        "document": (TAUGHT, "a film"),
        **on(
            TAUGHT,
            "kept_tokens=2 self_study=3 pattern=other loss_on=answer max_new_tokens=3 "
            "write_every=1 beams=3 temperature=1.0 repetition_penalty=0.1 stop=[a,e,i,o,s]",
        ),
        **on(STUDIED, "chunk=5 draw=1"),
        **on([*TAUGHT, "readout.temperature=1.0"], "top_k=1 top_p=0.1"),
        **on([], "length_penalty=tests/readout/test_writing.py"),
        **dict.fromkeys(CHAT, ([], "tests/readout/test_chat.py")),
    },
    "Adapter": {
        **on(SST2, "layout=pfeiffer maps=phm hidden=8 dropout=0.5"),
        **on([*SST2, "method.maps=phm"], "order=2 shared_mixing=true"),
    },
    "DePT": on(SST2, "length=2 rank=2 tokens=2 pair_lr=1e-4"),
    "PromptLoRA": on(SST2, "length=2 rank=2 alpha=4 dropout=0.5 targets=[value] lora_lr=1e-4"),
    "ResidualPrompt": on(SST2, "length=2 hidden=8 separate=true"),
    "Attempt": on(SST2, "length=2 rescale=10 after=1 double_embedding=true"),
    "CPT": dict.fromkeys(("epsilon", "format_epsilon", "decay"), ([], "tests/method/test_cpt.py")),
    "DPT": {"reserved": ([*DPT, "backbone.path=reserving"], "true")},
    "IDPG": {
        **on(
            SST2,
            "length=2 sharing=S deep=false generator=dense hidden=8 order=2 shared_mixing=true "
            "layer_norm=true residual=true source=first position=1 dropout=0.5",
        ),
        **on([*SST2, "method.source=first"], "glove=glove.txt instance_dropout=true"),
    },
    "InContext": on(SAID, "examples=1 balanced=false"),
    "Instruction": {
        "text": ([*SAID, "method.text=the film was bad"], "good"),
        "candidate": ([], "tests/method/test_instruction.py"),
    },
    "LoRA": on(SST2, "rank=2 alpha=4 dropout=0.5 targets=[value]"),
    "MultitaskPrompt": {
        **on(SST2, "length=2 task_lr=0.5"),
        "distillation": ([], "tests/method/test_multitask_prompt.py"),
    },
    "PeftMethod": {"config": (SST2, "{peft_type: LORA, r: 2}")},
    "PromptTuning": on(SST2, "length=2 rescale=10 after=1 double_embedding=true"),
    "PTuning": {
        **on(
            ["task=sst2", pvps("soft"), "readout.pattern=soft"],
            "encoder=mlp hidden=full tune_backbone=true lm_eval_mode=true",
        ),
        "per_relation": (["task=lama", pvps("asked"), "readout.pattern=asked"], "false"),
    },
    "PTuningV2": {
        **on(
            SST2,
            "length=2 reparameterization=mlp prefix_kind=hidden shift_positions=false dropout=0.5 "
            "frozen_vectors=1 layers=[1,1]",
        ),
        "hidden": ([*SST2, "method.reparameterization=mlp"], "8"),
        "stacks": (["task=sst2", pvps("said"), "backbone.path=t5"], "[encoder]"),
    },
    "Cartridge": {
        **on(STOOD, "length=2 dropout=0.5 frozen_vectors=2 layers=[1,1]"),
        **on(STOOD_RANDOM, "reparameterization=mlp prefix_kind=hidden shift_positions=false"),
        "hidden": ([*STOOD_RANDOM, "method.reparameterization=mlp"], "8"),
        "stacks": ([], "tests/method/test_cartridge.py"),
    },
}
TRAINED = ["method=ptuning_v2", *SST2, "train.lr=3e-2", "train.max_steps=6"]
TUNED = [*FT, *SST2, "train.max_steps=6"]
MEASURED = [*TRAINED, "train.max_steps=12", "train.eval_every=1", "train.lr=0.3"]
TRAIN = {
    "epochs": ([*TRAINED, "train.max_steps=null"], "2"),
    **on(
        TRAINED,
        "max_steps=3 batch_size=3 lr=0.1 schedule=constant warmup=0.5 betas=[0.5,0.9] eps=0.1 "
        "clip=1e-3 eval_every=3 eval_rows=2 eval_first=true order=file",
    ),
    "decay": ([*TRAINED, "train.schedule=exponential"], "0.5"),
    "warmup_from_zero": ([*TRAINED, "train.warmup=0.5"], "true"),
    **on(TUNED, "weight_decay=0.5 backbone_lr=1e-2 backbone_weight_decay=0.5"),
    **on([*TUNED, "train.weight_decay=0.5"], "decay_vectors=true optimizer=adam"),
    "drop_last": ([*TRAINED, "train.batch_size=4"], "true"),
    **on(MEASURED, "select=last ties=last patience=1"),
    "compared": ([], "tests/training/test_stopping.py"),
}
SETTINGS = {
    "FewShot": {
        "k": (["setting=few_shot_32", "setting.k=2"], "1"),
        "per_class": (["setting=few_shot_32", "setting.k=1"], "true"),
    },
    "KShot": {
        "k": (["setting=k_100", "setting.k=3", "setting.dev=2"], "2"),
        **on(["setting=k_100", "setting.k=2", "setting.dev=2"], "dev=3 subset_seed=5"),
    },
    "LowResource": on(["setting=low_resource", "setting.share=0.5"], "share=0.9 subset_seed=7"),
    "SampleSize": {"n": (["setting=sample_size", "setting.n=4"], "5")},
}


@pytest.fixture(scope="module")
def world(tiny_folder, tmp_path_factory):
    """Return a function that gives the id of a run, and what it computed."""
    root = tmp_path_factory.mktemp("keys")
    for file in ROWS.glob("*.jsonl"):
        folder = root / FOLDERS.get(file.stem, file.stem)
        folder.mkdir(parents=True)
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        for split, own in (("train", lines), ("validation", lines[:-1]), ("test", lines)):
            (folder / f"{split}.jsonl").write_text("".join(own))
    (root / "glove.txt").write_text(
        "".join(f"{w} 0.{i} 0.2 0.{i} 0.1\n" for i, w in enumerate(FIVE))
    )
    kinds = {"reserving": reserving(tiny_folder("electra"), root / "reserving", first=100)}
    done = {}

    def given(override):
        key, _, value = override.partition("=")
        if key == "backbone.path":
            return f"{key}={kinds.get(value) or tiny_folder(value)}"
        return override.replace("glove.", f"{root}/glove.")

    def planned_of(overrides):
        own = tuple(map(given, ["backbone.path=bert", *COMMON, *overrides]))
        own += (f"outputs={root / 'outputs'}", f"data_dir={root}")
        return plan(compose_run(_last(own)))

    def run(overrides):
        planned = planned_of(overrides)
        if planned.run_id not in done:
            launch(planned.request)
            done[planned.run_id] = _computed(planned.folder)
        return planned.run_id, done[planned.run_id]

    run.id = lambda overrides: planned_of(overrides).run_id
    return run


COMMON = ["train.max_steps=2", "train.batch_size=4", "hardware.precision=fp32"]


def _last(overrides):
    """Return overrides with the last value of each key."""
    return [f"{k}={v}" for k, v in dict(o.split("=", 1) for o in overrides).items()]


def _computed(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    kept = [{k: v for k, v in row.items() if k not in TIMES} for row in rows]
    tensors = {n: t.tolist() for n, t in load_file(folder / "prompt.safetensors").items()}
    return json.dumps(kept), (folder / "predictions.jsonl").read_text(), json.dumps(tensors)


TIMES = ("digest", "seconds", "evaluation_seconds", "time", "tokens_per_second", "memory")


OPTION = {"Adapter": "adapter", "DPT": "dpt", "IDPG": "idpg", "LoRA": "lora", "PeftMethod": "peft"}
OPTION |= {"PromptTuning": "prompt_tuning", "PTuning": "ptuning", "PTuningV2": "ptuning_v2"}
OPTION |= {"Cartridge": "cartridge", "DePT": "dept", "ResidualPrompt": "residual_prompt"}
OPTION |= {"PromptLoRA": "prompt_lora", "MultitaskPrompt": "multitask_prompt"}
OPTION |= {"InContext": "in_context", "Instruction": "instruction", "CPT": "cpt"}
OPTION |= {"Attempt": "attempt"}
OWN = {"IDPG": ["method.order=4", "method.hidden=4"], "LoRA": ["method.alpha=8"]}
OWN |= {"InContext": ["method.examples=4"]}


ELSEWHERE = "tests/"
"""A witness that needs a tokenizer of its own is a test that is named."""


def cases():
    for name, keys in WITNESSES.items():
        group = "readout" if name.endswith("Reading") else "method"
        method = [f"method={OPTION[name]}", *OWN.get(name, [])] if group == "method" else []
        for key, (base, value) in keys.items():
            if not value.startswith(ELSEWHERE):
                yield pytest.param(f"{group}.{key}", [*method, *base], value, id=f"{name}.{key}")
    for key, (base, value) in TRAIN.items():
        if not value.startswith(ELSEWHERE):
            yield pytest.param(f"train.{key}", base, value, id=f"train.{key}")
    for name, keys in SETTINGS.items():
        for key, (base, value) in keys.items():
            yield pytest.param(f"setting.{key}", [*TRAINED, *base], value, id=f"{name}.{key}")


FAST = ("readout.pooler", "method.hidden", "train.decay", "setting.n")


@pytest.mark.parametrize(("key", "base", "value"), tiered(cases(), lambda key, *_: key in FAST))
def test_another_value_changes_what_is_computed(world, key, base, value):
    before, computed = world(base)
    after, other = world([*base, f"{key}={value}"])
    assert after != before and other != computed


def test_every_key_has_a_witness():
    """Of methods, read-outs, settings and training; a named test knows the key."""
    for group in ("method", "readout", "setting"):
        for path in shipped(group):
            made, own = component(group, path), {**WITNESSES, **SETTINGS}
            assert {*schema_of(made)} == {*own.get(made.__name__, {})}, made
    assert {field.name for field in fields(TrainConfig)} == {*TRAIN}
    for keys in (*WITNESSES.values(), TRAIN):
        for key, (_, value) in keys.items():
            if value.startswith(ELSEWHERE):
                assert key in (ROWS.parents[1] / value).read_text(), key


def schema_of(made):
    """Return the keys that a class takes from a configuration."""
    parameters = inspect.signature(made).parameters.values()
    return [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]


IN_NO_ID = [
    *("hardware.device=cpu", "hardware.token_budget=99", "hardware.checkpointing=true"),
    *("hardware.population=3", "backbone.dtype=bf16", "backbone.lr={prompt: 1, full: 2}"),
    *("backbone.source=x", "tracking=none", "keep=state", "sweep.retry=failed", "cluster.cpus=2"),
]


@pytest.mark.parametrize("override", IN_NO_ID)
def test_what_changes_no_number_is_in_no_id(world, override):
    assert world.id([*TRAINED, override]) == world.id(TRAINED)


@pytest.mark.parametrize(
    "override",
    [
        *("method.hidden=9", "train.decay=0.5", "train.backbone_lr=1", "train.compared=[f1]"),
        *("train.warmup_from_zero=true", "train.decay_vectors=true", "train.epochs=9"),
        *("readout.literal_sep=true", "train.backbone_weight_decay=0.3"),
    ],
)
def test_a_key_without_effect_here_is_in_no_id(world, override):
    """One run, not two with equal numbers, of `ptrun -m KEY=a,b`."""
    assert world.id([*TRAINED, override]) == world.id(TRAINED)


@pytest.mark.parametrize("override", ["method.tokens=9", "method.pair_lr=1"])
def test_the_pair_of_dept_has_no_keys_at_rank_0(world, override):
    zero = ["method=dept", *SST2, "method.rank=0"]
    assert world.id([*zero, override]) == world.id(zero)


@pytest.mark.parametrize(
    "override",
    ["objective=batch_margin", "beam=4", "sentinel=false", "shifted_label=true", "swapped=true"],
)
@pytest.mark.parametrize("option", READINGS)
def test_a_read_out_refuses_a_typed_key_that_changes_nothing(world, option, override):
    base = DPT if option == "class_words" else SST2
    with pytest.raises(UserError, match=rf"readout\.{override.partition('=')[0]}"):
        world.id([*base, f"readout={option}", f"readout.{override}"])
