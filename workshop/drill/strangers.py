"""Files of somebody else: links, pipes, huge files, wrong types, configurations and names.

A case plants one of them where a command reads or writes, with digests that fit, and types the
command. It may refuse with one message, or go on. It may not end in a traceback, hang, change or
create a file outside its folder of outputs, print a variable of the environment or control
characters, or import what lies in the current folder.
"""

import hashlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ptrun.folder import digest
from workshop.drill import damage
from workshop.drill.ends import Ended, has_traceback
from workshop.drill.warm import Call, Called
from workshop.drill.world import World

SECRET = "7f3a-of-the-environment"
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_READ = (
    "state, resume",
    "journal, resume",
    "owner, resume",
    "prompt, predict",
    "prompt, start=run:",
    "result, predict",
    "result, report",
    "run.yaml, rerun",
    "journal, diff",
    "predictions, diff",
    "jobs of a cluster, status",
    "kept hashes, predict",
    "weights, predict",
    "tokenizer, predict",
    "tokenizer settings, predict",
    "configuration, predict",
)
"""The files of `damage` that somebody else may have made."""
_UNTYPED = ("weights, predict", "kept hashes, predict")
_TYPED = tuple(name for name in _READ if name not in _UNTYPED)
_SPARSE = 9 * 2**30


def _outside(world: World) -> Path:
    """Return a folder that no command may change."""
    folder = world.root / "outside"
    folder.mkdir(exist_ok=True)
    (folder / "kept").write_text("kept\n")
    return folder


def _link(file: Path, world: World, draw: random.Random) -> str:
    to = _outside(world) / draw.choice(["kept", "new"])
    file.unlink()
    file.symlink_to(to)
    return f"a link to {to.name}"


def _pipe(file: Path, _: World, draw: random.Random) -> str:
    kind = draw.choice(["pipe", "device", "folder"])
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(draw.choice(["/dev/zero", "/dev/tty", "/proc/self/environ"]))
    return f"a {kind}"


def _size(file: Path, _: World, draw: random.Random) -> str:
    head = file.read_bytes()[: draw.choice([0, 1, 8, 64])]
    with file.open("wb") as opened:
        opened.write(head)
        opened.truncate(_SPARSE)
    return f"9 GiB behind {len(head)} bytes"


ODD: tuple[Any, ...] = (5, -1, 10**30, float("inf"), 0.5, "text", "", [], {}, [1], None, True)
ODD += ({"a": [[]]}, [{}], "\x1b[2J\u202e", "../../outside/new", ["a", 1], {"step": "x"})


def _type(file: Path, _: World, draw: random.Random) -> str:
    """Replace a value somewhere by one of another type; digests fit."""
    value = draw.choice(ODD)
    if file.suffix == ".safetensors":
        return _of_tensors(file, value, draw)
    if file.suffix == ".jsonl":
        lines = file.read_text().splitlines()
        place = draw.randrange(len(lines))
        row = json.loads(lines[place])
        where = _replaced(row, value, draw)
        lines[place] = digest.line(row).strip()
        file.write_text("\n".join(lines) + "\n")
        return f"{where} is {value!r}"
    if file.suffix == ".yaml":
        content = yaml.safe_load(file.read_text())
        where = _replaced(content, value, draw)
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        _renew(file)
        return f"{where} is {value!r}"
    content = json.loads(file.read_text())
    where = _replaced(content, value, draw)
    if "digest" in content and isinstance(content, dict):
        content = digest.sealed(json.loads(json.dumps(content)))
    file.write_text(json.dumps(content))
    return f"{where} is {value!r}"


def _renew(file: Path) -> None:
    """Give the result of a run the digest of a file beside it."""
    result = file.with_name("result.json")
    content = json.loads(result.read_text())
    content["files"][file.name] = digest.of_file(file)
    result.write_text(json.dumps(digest.sealed(content)))


def _of_tensors(file: Path, value: Any, draw: random.Random) -> str:
    from ptrun.folder import tensors

    found, header = tensors.read(file, "")
    key = draw.choice(sorted(header))
    try:
        content = json.loads(header[key])
    except ValueError:
        content = header[key]
    where = key
    if isinstance(content, dict | list) and content and draw.random() < 0.8:
        where = f"{key}.{_replaced(content, value, draw)}"
    else:
        content = "[" * 50_000 if draw.random() < 0.2 else value
    header[key] = content if isinstance(content, str) else json.dumps(content)
    tensors.draft(file, found, header)()
    return f"header {where} is {value!r}"


def _replaced(content: Any, value: Any, draw: random.Random) -> str:
    """Replace a value at a random place of nested data; return the place."""
    places = list(_places(content))
    parent, key, where = draw.choice(places)
    if isinstance(parent, dict) and draw.random() < 0.15:
        del parent[key]
        return f"without {where}, which"
    parent[key] = value
    return where


def _places(content: Any, where: str = "") -> Iterator[tuple[Any, Any, str]]:
    keys: Any = content if isinstance(content, dict) else range(len(content))
    for key in list(keys)[:200]:
        yield content, key, f"{where}{key}"
        if isinstance(content[key], dict | list):
            yield from _places(content[key], f"{where}{key}.")


Plant = Callable[[Path, World, random.Random], str]
_PLANTS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "links": (_link, _READ),
    "pipes": (_pipe, _READ),
    "sizes": (_size, _READ),
    "types": (_type, _TYPED),
}


def _read(world: World, kind: str, draw: random.Random) -> tuple[str, Called]:
    """Let a command read a planted file."""
    plant, targets = _PLANTS[kind]
    target = draw.choice(targets)
    make, name = damage.KINDS[target]
    case = make(world, name)
    what = f"{target}: {plant(case.file, world, draw)}"
    return what, world.warm.run(Call(case.line, world.root, **_given(world, case.given)))


def _given(world: World, given: Mapping[str, Any]) -> dict[str, Any]:
    environment = {"OWN_SECRET": SECRET, "XDG_CONFIG_HOME": str(world.root / "home")}
    environment |= {"PTRUN_TRUST": ""}
    return {**given, "environment": {**environment, **given.get("environment", {})}}


_PLACES = ("runs", ".tokens")


def _written(world: World, _: str, draw: random.Random) -> tuple[str, Called]:
    """Let a run write where links lead out of its folder of outputs."""
    outputs, out = world.clear() / "outputs", _outside(world)
    name = draw.choice([*_PLACES, "run folder", "journal", "drafts", "in run folder"])
    line = [*world.line, f"outputs={outputs}"]
    if name in _PLACES:
        outputs.mkdir()
        (outputs / name).symlink_to(out)
    else:
        folder = outputs / "runs" / world.finished.name
        inside = "tensorboard" if name == "in run folder" else "metrics.jsonl"
        place = folder if name == "run folder" else folder / inside
        place.parent.mkdir(parents=True)
        if name == "drafts":
            for pid in range(os.getpid(), os.getpid() + 400):
                (folder / f".result.json.{pid}").symlink_to(out / "new")
                (folder.parent / f"..{folder.name}.owner.{pid}").symlink_to(out / "new")
        else:
            place.symlink_to(out / ("" if name == "run folder" else "new"))
    return f"links at {name}", world.warm.run(Call(line, world.root, **_given(world, {})))


_KEYS = (
    "outputs: OUT",
    "hydra: {run: {dir: OUT}, job: {env_set: {PTRUN_TRUST: '1'}}}",
    "hydra: {callbacks: {x: {_target_: os.mkdir, path: OUT/new}}}",
    "sweep: {'on': slurm}",
    "cluster: {setup: [touch OUT/new]}",
    "cluster: {sbatch: {wrap: touch OUT/new}}",
    'cluster: {partition: "a\\ntouch OUT/new"}',
    "tracking: {mlflow: {uri: 'http://127.0.0.1:9'}}",
    "tracking: {wandb: {project: x}}",
    "name: ${oc.env:OWN_SECRET}",
    "name: ../../outside/new",
    "method: {_target_: planted.Planted}",
    "task: {name: '${oc.env:OWN_SECRET,x}'}",
    "expected: {a: '${oc.decode:${oc.env:OWN_SECRET}}'}",
    "allow_code: true",
    "backbone: {path: OUT/kept}",
    "trial: 5",
    "pretraining: {seed: [1]}",
)
_WAYS = ("global", "defaults", "dots", "package", "linked file", "linked folder", "root")
_LINES = (["check"], ["plan"], ["--cfg", "job"], ["-m", "seed=1"])


def _configured(world: World, _: str, draw: random.Random) -> tuple[str, Called]:
    """Let a command read the `ptrun_conf` of a project."""
    project, out = world.clear() / "project", _outside(world)
    conf, hidden = project / "ptrun_conf", project / "hidden"
    hidden.mkdir(parents=True)
    (project / "planted.py").write_text(f"open({str(out / 'new')!r}, 'w')\nclass Planted: pass\n")
    key, way = draw.choice(_KEYS).replace("OUT", str(out)), draw.choice(_WAYS)
    group, option = draw.choice([("setting", "few_shot_32"), ("protocol", "honest")])
    own, text = conf / group / f"{option}.yaml", f"# @package _global_\n{key}\n"
    own.parent.mkdir(parents=True)
    if way in ("global", "root"):
        (conf / "run.yaml" if way == "root" else own).write_text(text)
    elif way in ("defaults", "dots"):
        place = conf / "zz" if way == "defaults" else hidden
        place.mkdir(exist_ok=True)
        (place / "evil.yaml").write_text(text)
        own.write_text(f"defaults: [{'/zz/evil' if way == 'defaults' else '../../hidden/evil'}]\n")
    elif way == "package":
        root, _, value = key.partition(": ")
        (conf / "zz").mkdir()
        (conf / "zz" / "evil.yaml").write_text(value if value[0] == "{" else f"{{x: {value}}}")
        own.write_text(f"defaults: [/zz/evil@_global_.{root}]\n")
    else:
        (hidden / f"{option}.yaml").write_text(text)
        if way == "linked folder":
            own.parent.rmdir()
            own.parent.symlink_to(hidden)
        else:
            own.symlink_to(hidden / f"{option}.yaml")
    command = draw.choice(_LINES)
    line = [*command, *world.line, f"{group}={option}"]
    given = {**_given(world, {}), "environment": _given(world, {})["environment"]}
    return f"{key} by {way}", world.warm.run(Call(line, project, **given))


_NAMES = (
    "a\x1b[2Jb",
    "a\nb;touch own",
    "$(touch own)",
    "`touch own`",
    "=cmd|calc",
    "@SUM(1)",
    "<img src=x onerror=y>",
    "[x](javascript:y)",
    "a\u202eb\u200f",
    "a'b\"c",
    "--help",
    "a\x9bb",
)


def _named(world: World, _: str, draw: random.Random) -> tuple[str, Called]:
    """Let a command print names that somebody else chose."""
    project, name = world.clear() / "project", draw.choice(_NAMES)
    folder = project / "outputs" / draw.choice([name, "runs"]) / draw.choice([name, "own"])
    shutil.copytree(world.finished, folder)
    content = json.loads((folder / "result.json").read_text())
    content["names"] = {key: draw.choice([name, value]) for key, value in content["names"].items()}
    content["run_id"] = draw.choice([name, content["run_id"]])
    (folder / "result.json").write_text(json.dumps(digest.sealed(content)))
    path = str(folder.relative_to(project))
    lines = [
        ["status"],
        ["report", "outputs"],
        ["report", "outputs", "--csv", "-"],
        ["report", "outputs", "--markdown"],
        ["completion", "--line", "ptrun predict outputs/"],
        ["predict", path, "--input", f"{world.inputs}/rows.csv"],
        ["predict", path, "--input", name],
        ["diff", path, path],
        ["rerun", path, "train.max_steps=1"],
    ]
    line = draw.choice(lines)
    return f"{name!r}: {' '.join(line[:2])}", world.warm.run(
        Call(line, project, **_given(world, {}))
    )


_MADE: dict[str, Callable[[World, str, random.Random], tuple[str, Called]]] = {
    **dict.fromkeys(_PLANTS, _read),
    "written links": _written,
    "configurations": _configured,
    "names": _named,
}
KINDS = tuple(_MADE)


def do(world: World, kind: str, number: int, seed: int) -> Ended:
    """Plant one thing and type a command."""
    draw = random.Random(f"{kind} {number} {seed}")
    shutil.rmtree(_outside(world))
    before = _state(_outside(world))
    what, done = _MADE[kind](world, kind, draw)
    end = judged(done, changed=_state(_outside_as_is(world)) != before, leaked=_leaked(world))
    return Ended(kind, end, what, f"{done.code} {(done.err + done.out)[-600:]}")


def judged(done: Called, *, changed: bool, leaked: bool) -> str:
    """Return how a command ended."""
    if has_traceback(done):
        return "traceback"
    if done.code not in (0, 1):
        return "lost"
    if changed or leaked or SECRET in done.out + done.err or _CONTROL.search(done.out + done.err):
        return "wrong"
    return "refused" if done.code else "same"


def _outside_as_is(world: World) -> Path:
    return world.root / "outside"


def _state(folder: Path) -> str:
    """Return a hash of all names and contents below a folder."""
    hashed = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        hashed.update(str(file).encode() + (file.read_bytes() if file.is_file() else b"/"))
    return hashed.hexdigest()


def _leaked(world: World) -> bool:
    """Return whether a file that the command made has the variable of the environment."""
    files = (file for file in world.now.rglob("*") if file.is_file() and not file.is_symlink())
    small = (file for file in files if file.stat().st_size < 10**8)
    return any(SECRET.encode() in file.read_bytes() for file in small)
