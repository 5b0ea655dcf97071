"""Composes a command line of the documentation: everything is checked that needs no data or GPU."""

import re
import shlex
import tomllib

from ptrun.config.arguments import load
from ptrun.config.build import check
from ptrun.config.compose import compose_run
from ptrun.config.overriding import expanded
from ptrun.method.base import check_pair
from ptrun.papers.experiment import jobs, parse
from ptrun.papers.experiment import load as experiment
from tests.docs.pages import ROOT
from workshop import adapt, random_model
from workshop.pretrain import __main__ as pretrain

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
WORKSHOP = {
    "workshop.adapt": adapt,
    "workshop.pretrain": pretrain,
    "workshop.random_model": random_model,
}
LAUNCHERS = ("torchrun", "deepspeed", "srun")


def compose(line):
    """Compose a line; a wrong command, option, key or value raises."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["pip", "install"]:
        _install(words[2:])
    elif words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), line
    elif words[:2] == ["python", "-m"]:
        WORKSHOP[words[2]].read(words[3:])
    else:
        assert words[0] == "ptrun" or words[0] in LAUNCHERS, line
        _ptrun(words[words.index("ptrun") + 1 :])


def _install(packages):
    for package in packages:
        name, extras = re.fullmatch(
            r"(\w+|\.)(?:\[([\w,]+)\])?", package
        ).groups()  # . is a checkout
        assert name in ("ptrun", ".") and {*(extras or "all").split(",")} <= {*EXTRAS}, package


def _ptrun(words):
    first = words[0] if words else ""
    command, rest = (first, words[1:]) if load(first) else ("run", words)
    module = load("paper" if command == "report" and "--paper" in rest else command)
    if command == "import" and not rest[0].startswith("-"):
        module.kinds()[rest[0]].PARSER.parse(rest[1:])
    elif command == "new":  # later lines use the files that it writes
        module.main(rest)
    else:
        given = module.PARSER.parse(rest)
        if command in ("run", "check", "plan", "search"):
            _overrides(given.overrides)


def _overrides(overrides):
    if any(o.startswith("experiment=") for o in overrides):
        options = parse(overrides)
        assert jobs(experiment(options.experiment), options)
        return
    local = ("backbone.path=", "task.pattern=@")  # files that are not here
    searched = [o for o in overrides if "interval(" not in o and not o.startswith(local)]
    for one, _ in expanded(searched):
        composed = compose_run(one)
        parts = composed.components()
        check({group: part.node for group, part in parts.items()})
        if not {"task=csv", "task=hub"} & {*one}:  # they read their rows to know their labels
            _pair(composed, parts)


def _pair(composed, parts):
    backbone = parts["backbone"].build()
    task = parts["task"].build(None, None)
    check_pair(parts["method"].target, *composed.readout, backbone, task, composed.typed_readout)
