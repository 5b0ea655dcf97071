"""Run folders, configurations, models and data files from somebody else execute nothing.

Each case plants code or a path that would create the folder `owned` beside the project, and types
every command that reads the planted file. Nothing may be created outside the project.
"""

import json
import os
import pickle
import re
import shutil
from itertools import cycle
from pathlib import Path

import pytest
import yaml

from ptrun.folder import digest
from tests.cli.conftest import Command
from tests.cli.warm import SECRET
from tests.tiers import tiered

SLOW = pytest.mark.slow
VARIABLE = "${oc.env:DB_PASSWORD}"
RUN = ["task=pocket_sentiment", "method=prompt_tuning", "method.length=2", "train.max_steps=1"]
RUN += ["setting=few_shot_32"]
ID = "outputs/runs/theirs"


def popen(owned):
    return {"_target_": "subprocess.Popen", "args": ["mkdir", str(owned)]}


def system(owned):
    return {"_target_": "os.system", "command": f"mkdir {owned}"}


def code(owned):
    return f"import os; os.mkdir({str(owned)!r})"


@pytest.fixture(scope="session")
def theirs(tmp_path_factory, warm):
    """Make a run once; each case has a copy."""
    made = Command(tmp_path_factory.mktemp("theirs"), Path(), Path(), warm)
    done = made(*RUN)
    assert done.returncode == 0, done.stderr
    (file,) = made.results()
    return file.parent


@pytest.fixture
def project(ptrun, theirs):
    """Return the command in a folder that is not trusted, with a run of somebody else."""
    home = str(ptrun.folder.parent / "home")
    ptrun.environment = {"PTRUN_TRUST": "", "XDG_CONFIG_HOME": home}
    shutil.copytree(theirs, ptrun.folder / ID)
    (ptrun.folder / "rows.csv").write_text("sentence\nfine\n")
    return ptrun


def seal(folder):
    """Make the digests of a run fit what was planted: whoever writes a folder can do so."""
    file = folder / "result.json"
    content = {**json.loads(file.read_text()), "files": digest.beside(folder)}
    file.write_text(json.dumps(digest.sealed(content)))


def attack(project, *commands):
    """Type commands; return what they print. Nothing outside the project may change."""
    seal(project.folder / ID)
    root = project.folder.parent
    before = outside(root, project.folder)
    text = ""
    for command in commands:
        done = project(*command)
        text += done.stdout + done.stderr
        assert done.returncode in (0, 1), done.stderr
    assert outside(root, project.folder) == before, text
    assert not list(root.rglob("owned*")), text
    files = (file for file in project.folder.rglob("*") if file.is_file())
    assert not [file for file in files if SECRET.encode() in file.read_bytes()]
    return text


def outside(root, folder):
    return sorted(path for path in root.rglob("*") if folder not in (path, *path.parents))


READERS = [
    ("predict", ID, "--input", "rows.csv"),
    ("rerun", ID, "train.max_steps=2"),
    ("diff", ID, ID + "/../theirs"),
    ("report", "outputs"),
    (*RUN, f"start=run:{ID}"),
]


def prerequisite(**keys):
    """Return the keys of a run that needs another one."""
    empty = {"recipe": None, "seed": 1, "start": None}
    empty |= {"method": {}, "readout": {}, "task": {}, "train": {"max_steps": 1}}
    return {"start": "pretrained:pocket_topics", "pretraining": {**empty, **keys}}


def planted(owned):
    """Write a file of options that holds a secret; return its name as an option of a group."""
    (file,) = (folder / "evil.yaml" for folder in owned.parent.glob("*/outputs"))
    content = {"task": {"descriptions": {"world": VARIABLE}}}
    content["method"] = {"_target_": "ptrun.method.prompt_tuning.PromptTuning"}
    file.write_text(f"# @package _global_\n{yaml.safe_dump(content)}")
    return "../" * 20 + str(file.with_suffix("")).lstrip("/")


IMPORTED, TRACKERS = "ptrun.hardware.processes.subprocess.Popen", "ptrun.tracking.trackers.Trackers"
OUT = "../../../owned"
RECORDED = {
    "a nested node": ("config.backbone.lr", lambda o: {"x": popen(o)}),
    "a method": ("config.method", popen),
    "a task": ("config.task", system),
    "a task with positions": ("config.task._target_", lambda _: "builtins.exec"),
    "a backbone": ("config.backbone", system),
    "an engine": ("config.hardware", popen),
    "a node in a list": ("config.task.metrics", lambda o: [popen(o)]),
    "something that ptrun imports": ("config.task._target_", lambda _: IMPORTED),
    "a component of another group": ("config.method._target_", lambda _: TRACKERS),
    "an id that leads out": ("run_id", lambda _: OUT),
    "a name that leads out": ("names.method", lambda _: OUT),
    "a group that leads out": ("group", lambda _: OUT),
    "a secret as a name": ("names.task", lambda _: VARIABLE),
    "a secret for the hub": ("config.backbone.hub", lambda _: VARIABLE),
}
EXEC = {"_target_": "builtins.exec"}
REQUESTED = {
    "code in data_dir": ("config", lambda o: {"task": EXEC, "data_dir": code(o)}),
    "a task": ("config.task", system),
    "a method": ("config.method", popen),
    "a nested node": ("config.method.words", lambda o: {"x": popen(o)}),
    "a family": ("config.backbone.families", lambda o: {"bert": popen(o)}),
    "a backbone": ("config.backbone", system),
    "an engine": ("config.hardware", popen),
    "a protocol": ("config.protocol", popen),
    "a setting": ("config.setting", popen),
    "a tracker": ("config.tracking", popen),
    "a prerequisite run": ("config", lambda o: prerequisite(task=popen(o))),
    "outputs elsewhere": ("config.outputs", str),
    "outputs above": ("config.outputs", lambda _: ".."),
    "a recipe that is a file": ("config", lambda o: prerequisite(recipe=planted(o))),
    "a name that leads out": ("config.name", lambda _: OUT),
    "an option that leads out": ("names.method", lambda _: OUT),
    "a seed that leads out": ("config.seed", lambda _: "1/../../../owned"),
    "a secret as a name": ("config.name", lambda _: VARIABLE),
    "a secret of a prerequisite run": ("config", lambda _: prerequisite(method={"x": VARIABLE})),
}
OPTIONS = {
    "task/pocket_ner.yaml": lambda o: {"task": system(o)},
    "method/ptuning_v2.yaml": lambda o: {
        "method": popen(o),
        "hydra": {"callbacks": {"x": popen(o)}},
    },
    "setting/few_shot_32.yaml": lambda o: {"name": "../../owned", "expected": {"a": VARIABLE}},
    "tracking/none.yaml": lambda o: {"outputs": str(o), "tracking": popen(o)},
    "run.yaml": lambda o: {"hydra": {"job_logging": {"handlers": {"x": {"()": "os.mkdir"}}}}},
}
"""Files of a folder of options that is not trusted: none is read."""


def some(cases, count):
    """Return cases as parameters; the core runs the first few."""
    return [
        pytest.param(*case, id=name, marks=[] if number < count else SLOW)
        for number, (name, case) in enumerate(cases.items())
    ]


def in_turn(cases, count, readers):
    """Return cases as parameters: each with the first reader, and with one of the others."""
    first = [
        pytest.param(*one.values, readers[:1], id=one.id, marks=one.marks)
        for one in some(cases, count)
    ]
    others = cycle(readers[1:])
    return first + [
        pytest.param(*one.values, [reader], id=f"{one.id}, {reader[0]}", marks=SLOW)
        for one, reader in zip(some(cases, 0), others, strict=False)
    ]


def plant(project, name, path, value):
    """Replace what stands at a path in a file of the run; a mapping without a class is added."""
    file = project.folder / ID / name
    read, write = (
        (json.loads, json.dumps) if file.suffix == ".json" else (yaml.safe_load, yaml.safe_dump)
    )
    content = node = read(file.read_text())
    value = value(project.folder.parent / "owned")
    *parents, last = path.split(".")
    for key in parents:
        node = node[key]
    if isinstance(value, dict) and isinstance(node.get(last), dict) and "_target_" not in value:
        node[last].update(value)
    else:
        node[last] = value
    file.write_text(write(content))


@pytest.mark.parametrize(("path", "value", "readers"), in_turn(RECORDED, 4, READERS))
def test_a_result_executes_and_writes_nothing(project, path, value, readers):
    plant(project, "result.json", path, value)
    attack(project, *readers)


@pytest.mark.parametrize("readers", [READERS[:1], pytest.param(READERS[1:2], marks=SLOW)])
@pytest.mark.parametrize(("path", "value"), some(REQUESTED, 5))
def test_a_request_executes_and_writes_nothing(project, path, value, readers):
    plant(project, "run.yaml", path, value)
    attack(project, *readers)


def test_a_trusted_folder_runs_no_class_of_a_run_of_somebody_else(project):
    project.environment["PTRUN_TRUST"] = "1"
    plant(project, "run.yaml", "config.method", popen)
    attack(project, *READERS[:2])


def test_a_request_with_a_python_tag_is_damaged(project):
    file = project.folder / ID / "run.yaml"
    file.write_text(f"config: !!python/object/apply:os.mkdir [{project.folder.parent / 'owned'}]\n")
    assert "damaged" in attack(project, *READERS[:2])


SMALL = ("setting=few_shot_32", "train.max_steps=1")
COMPOSING = [("check",), SMALL, ("plan",), ("-m", *SMALL, "seed=1,2"), ("list",), ("grid",)]
COMPOSING += [("--cfg", "job")]


@pytest.mark.parametrize("commands", [COMPOSING[:2], pytest.param(COMPOSING[2:], marks=SLOW)])
def test_a_folder_of_options_executes_and_writes_nothing(project, commands):
    for name, content in OPTIONS.items():
        file = project.folder / "ptrun_conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(content(project.folder.parent / "owned"))
        file.write_text(f"# @package _global_\n{text}")
    assert attack(project, *commands).count("type: ptrun trust") == len(commands)


@SLOW
def test_own_code_runs_where_it_is_trusted_and_nowhere_else(project):
    (project.folder / "mine.py").write_text(
        "from ptrun.method.prompt_tuning import PromptTuning\n\n\n"
        "class Mine(PromptTuning):\n    pass\n"
    )
    own = project.folder / "ptrun_conf" / "method" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("defaults: [prompt_tuning]\n_target_: mine.Mine\n")
    typed = [*RUN[:1], "method=mine", *RUN[2:], "name=own", "seed=1,2"]
    refused = project("-m", *typed)
    assert refused.returncode == 1 and "type: ptrun trust" in refused.stderr
    assert project("trust").returncode == 0
    done = project("-m", *typed)  # its workers trust the folder too
    assert done.returncode == 0, done.stderr
    folder = next((project.folder / "outputs" / "own").glob("*/result.json")).parent
    facts = json.loads((folder / "result.json").read_text())["manifest"]
    assert facts["own_code"].keys() == {"mine.Mine"}
    again = ["predict", str(folder), "--input", "rows.csv"]
    assert project(*again).returncode == 0
    assert project("trust", "--remove").returncode == 0
    assert "It was not imported" in project(*again).stderr


class Planted:
    """Creates a folder when it is unpickled."""

    def __init__(self, owned):
        self.owned = owned

    def __reduce__(self):
        return os.mkdir, (str(self.owned),)


def module(folder, owned):
    (folder / "theirs.py").write_text(code(owned))
    own = {"AutoConfig": "theirs.X", "AutoModel": "theirs.X", "AutoTokenizer": ["theirs.X", None]}
    for name in ("config.json", "tokenizer_config.json"):
        file = folder / name
        file.write_text(json.dumps({**json.loads(file.read_text()), "auto_map": own}))


def weights(folder, owned):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Planted(owned)))


def adapter(folder, owned):
    own = {"peft_type": "LORA", "auto_mapping": {"parent_library": "theirs"}}
    (folder / "adapter_config.json").write_text(json.dumps(own))
    (folder / "theirs.py").write_text(code(owned))


def template(folder, owned):
    text = "{{ cycler.__init__.__globals__.os.mkdir('" + str(owned) + "') }}"
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": text}))


@SLOW
@pytest.mark.parametrize("spoil", [module, weights, adapter, template])
def test_a_model_folder_executes_nothing(project, spoil):
    folder = project.folder / "model"
    shutil.copytree(project.backbone, folder)
    spoil(folder, project.folder.parent / "owned")
    own = ["backbone.path=model", *RUN]
    attack(project, own, ("check", *own), ("plan", *own))


RELATIONS = ["{outside}/owned", "../../owned", "..", "a/b", "x" * 400]


@pytest.mark.parametrize("relation", tiered(RELATIONS, lambda relation: relation == RELATIONS[0]))
def test_a_relation_names_no_file_outside(project, relation):
    relation = relation.format(outside=project.folder.parent)
    for file in (project.data_dir / "lama").glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps({**r, "predicate_id": relation}) + "\n" for r in rows))
    own = ["task=lama", "method=ptuning_lama", f"data_dir={project.data_dir}"]
    own += [f"backbone.path={project.backbone}", "train.max_steps=1", "train.eval_every=1"]
    attack(project, own)


ODD = "\x1b]0;owned\x07\x9b31m"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def marked(value):
    """Return plain data with control characters in every text of it."""
    if isinstance(value, dict):
        return {key: marked(own) for key, own in value.items()}
    if isinstance(value, list):
        return [marked(own) for own in value]
    return value + ODD if isinstance(value, str) else value


def renamed(content):
    metric = content["metric"] + ODD
    return {"metric": metric, "metrics": {"dev": {metric: 50.0}, "test": {metric: 50.0}}}


PRINTED = {
    "a reason": lambda content: {"status": "failed", "reason": ODD},
    "names": lambda content: {"names": marked(content["names"])},
    "facts": lambda content: {"manifest": marked(content["manifest"])},
    "a configuration": lambda content: {"config": marked(content["config"])},
    "a metric": renamed,
}
PRINTERS = [("report", "outputs"), *READERS[:2], ("status",), ("report", "--markdown", "outputs")]


@pytest.mark.parametrize("commands", [PRINTERS[:1], pytest.param(PRINTERS[1:], marks=SLOW)])
@pytest.mark.parametrize("change", some({name: (change,) for name, change in PRINTED.items()}, 2))
def test_a_result_moves_no_cursor(project, change, commands):
    file = project.folder / ID / "result.json"
    content = json.loads(file.read_text())
    content = {k: v for k, v in content.items() if k not in ("digest", "files")}
    file.write_text(json.dumps(content | change(content)))
    assert not CONTROL.search(attack(project, *commands))


@SLOW
def test_data_options_and_owners_move_no_cursor(project):
    rows = "".join(f"fine{ODD} {i},a{ODD}\nbad {i},b\n" for i in range(40))
    (project.folder / "own.csv").write_text(f"text,label\n{rows}")
    own = project.folder / "ptrun_conf" / "task" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f"# nice{ODD}\n")
    owner = {"host": f"h{ODD}", "pid": 1, "since": ODD}
    (project.folder / "outputs" / "runs" / ".x.owner").write_text(json.dumps(owner))
    table = ["task=csv", "task.train=own.csv", "task.text=text", "task.label=label"]
    text = attack(project, ("list", "task"), ("status",))
    own.unlink()
    text += attack(project, ("check", *table), ("plan", *table))
    text += attack(project, [*table, "train.max_steps=1", "name=own"])
    (made,) = (project.folder / "outputs" / "own").glob("*/result.json")
    text += attack(project, ("predict", str(made.parent), "--input", "own.csv"))
    assert "owned" in text and not CONTROL.search(text)
