"""Compose the configuration of a run from the command line, conf/ and the user's folders."""

import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ptrun.config import plain_yaml, schema
from ptrun.config.build import Component, check, plain
from ptrun.config.explain import ERRORS, KINDS, PACKED, explain, no_option
from ptrun.config.identity import flat
from ptrun.config.paths import conf_dir, leads_out, package_dirs, user_dirs
from ptrun.config.trust import tell_untrusted
from ptrun.errors import UserError, unknown, visible, warn_once

_SHOWN = 6  # changed keys that are named
_NO_OPTION = re.compile(
    rf"({'|'.join(schema.GROUPS)})=([-+.\d][-+.\de]*|true|false|null)", re.IGNORECASE
)
_OUTSIDE = re.compile(r"(?:^|[\[,'\"\s])[/~]|\.\.|\$")
_UNSAFE, _LONGEST = re.compile(r"[^\w.]+"), 40  # of a name in the name of a folder
_SIZES = re.compile(r"[+~]*backbone\.config\b")
_KEYS = {*schema.KEYS}
_ROOT_KEYS = _KEYS - {*schema.LISTED}
_INSIDE_COMPONENT = re.compile(rf"^(?:pretraining|{'|'.join(schema.GROUPS)})\.")


class UserFolders(SearchPathPlugin):
    """Puts the user's folders before the shipped files, and those of packages after them."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the folders that exist and count."""
        for folder in reversed(user_dirs()):
            search_path.prepend(provider="ptrun-user", path=f"file://{folder}", anchor="main")
        for folder in package_dirs():
            search_path.append(provider="ptrun-package", path=f"file://{folder}")


Plugins.instance().register(UserFolders)


@dataclass(frozen=True)
class Composed:
    """The configuration of a run as plain data, and the chosen option of each group.

    `commits` are those of the hub that an earlier run recorded, by `Repository.key`. `typed` are
    the keys of the command line. `needs` are the ids of the runs that it needs.
    `ptrun.runs.plan` turns it into a `Plan`. Other modules use the properties below.
    """

    config: dict[str, Any]
    names: dict[str, str]
    commits: dict[str, str] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)

    @property
    def outputs(self) -> Path:
        """The folder of all runs."""
        return Path(self.config["outputs"])

    @property
    def name(self) -> str:
        """The name of the group of runs, a folder below `outputs`."""
        return str(self.config["name"])

    @property
    def seed(self) -> int:
        """The model seed."""
        return int(self.config["seed"])

    @property
    def data_dir(self) -> str | None:
        """The folder of local data."""
        return self.config["data_dir"]  # type: ignore[no-any-return]

    @property
    def train(self) -> schema.TrainConfig:
        """How the run is trained."""
        return schema.train_config(self.config["train"])

    @property
    def rerun(self) -> bool:
        """Whether a finished run is repeated."""
        return bool(self.config["rerun"])

    @property
    def keep(self) -> schema.Keep:
        """The large files that the finished run keeps."""
        return schema.Keep(self.config.get("keep") or "weights")

    def in_sweep(self) -> "Composed":
        """Return the run as a sweep does it: large files are kept only if that was typed."""
        return replace(self, config={**self.config, "keep": self.config.get("keep") or "none"})

    @property
    def trial(self) -> dict[int, float] | None:
        """The floors of a trial of a search; None for any other run."""
        floors = self.config.get("trial")
        if floors is None:
            return None
        try:
            return {int(step): float(floor) for step, floor in floors.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(
                f"trial={floors}: ptrun search sets it; type floors by step, such as {{20: 55.0}}."
            ) from error

    @property
    def tracking(self) -> Mapping[str, Any]:
        """The options of each tracker."""
        return self.config["tracking"]  # type: ignore[no-any-return]

    @property
    def sweep(self) -> schema.SweepConfig:
        """How the runs of the command are done."""
        kinds: dict[str, Any] = {"retry": schema.Retry, "share": schema.Share, "on": schema.On}
        node = self.config.get("sweep", {})
        return schema.SweepConfig(**{k: kinds[k](v) if k in kinds else v for k, v in node.items()})

    @property
    def cluster(self) -> schema.ClusterConfig:
        """The jobs of a cluster."""
        return schema.ClusterConfig(**self.config.get("cluster", {}))

    @property
    def hardware(self) -> schema.HardwareConfig:
        """The devices and processes that are requested."""
        node = self.config["hardware"]
        if any(key.startswith("hardware.") for key in self.typed) or not schema.is_hardware(node):
            check({"hardware": node})  # imports the class of the engine
        return schema.hardware_config(node)

    @property
    def dtype(self) -> schema.Precision:
        """The precision of the backbone's preset."""
        return self.config["backbone"].get("dtype", "bf16")  # type: ignore[no-any-return]

    @property
    def backbone_source(self) -> str | None:
        """How to get the backbone's weights; None if they are shipped, local or on the hub."""
        node = self.config["backbone"]
        here = any(node.get(key) for key in ("hub", "shipped", "path"))
        return None if here else str(node["source"])

    @property
    def task(self) -> Mapping[str, Any]:
        """The task as its file has it, with the overrides."""
        return self.config["task"]  # type: ignore[no-any-return]

    @property
    def data_source(self) -> str | None:
        """How to get the task's data; None if they are made, local or on the hub."""
        source = self.task.get("source")
        if not source or {"hub", "pocket", "_target_"} & source.keys():
            return None
        folder = str(source.get("folder", self.task["name"]))
        here = self.data_dir is not None and (Path(self.data_dir) / folder).is_dir()
        return None if here else str(source.get("how", f"data_dir=DIR with DIR/{folder}"))

    @property
    def backbone_name(self) -> str:
        """The backbone's own name, which may differ from its option."""
        return str(self.config["backbone"]["name"])

    @property
    def readout(self) -> tuple[str, dict[str, Any]]:
        """The option and node of the read-out, which `ptrun.readout.choose` completes."""
        return self.names["readout"], self.config["readout"] or {}

    @property
    def typed_readout(self) -> set[str]:
        """The keys of the read-out that were typed."""
        return {key.partition(".")[2] for key in self.typed if key.startswith("readout.")}

    def read_by(self, option: str, node: Mapping[str, Any]) -> "Composed":
        """Return the run with a completed read-out."""
        config, names = {**self.config, "readout": dict(node)}, {**self.names, "readout": option}
        return replace(self, config=config, names=names, typed=[])

    def components(self) -> dict[str, Component]:
        """Return the component of each group, without that of the read-out."""
        nodes = {group: self.config[group] for group in schema.GROUPS if group != "readout"}
        check(nodes)
        return {group: Component(group, node) for group, node in nodes.items()}


def loosen(override: str) -> str:
    """Let an override inside a component pass Hydra, so that `build` reports unknown keys.

    Hydra would stop at the first unknown key, with a message of several lines.
    """
    if _SIZES.match(override):
        raise UserError(
            f"{override}: backbone.config holds the sizes of a model and is not an option. "
            "Type backbone.dropout=, backbone.attention_dropout= or backbone.layer_norm_eps=."
        )
    group, _, option = override.partition("=")
    if group in schema.LISTED and _OUTSIDE.search(option):  # another file than an option's
        raise UserError(no_option(group, option))
    if any("\ud800" <= letter <= "\udfff" for letter in override):  # bytes of another encoding
        raise UserError(f"{override!a}: not UTF-8 text. Type it again, or rename the file.")
    if not override.partition("=")[0].strip("+~ "):
        raise UserError(f"{override}: expected KEY=VALUE.")
    if match := _NO_OPTION.fullmatch(override):  # Hydra ends with a traceback
        override = f"{match[1]}='{match[2]}'"
    key, equals, value = override.partition("=")
    if not value.isascii() and "'" not in value and '"' not in value:  # no word of Hydra's grammar
        parts = re.split(r"([,\[\]{}():]\s*)", value)
        override = key + equals + "".join(p if p.isascii() else f"'{p}'" for p in parts)
    return f"++{override}" if _INSIDE_COMPONENT.match(override) else override


def _resolved(content: dict[str, Any], choices: dict[str, Any], typed: Sequence[str]) -> Composed:
    """Return the plain data of a root as a run, with defaults from the environment."""
    content.pop("hydra", None)
    for key in content.keys() - _KEYS:
        raise UserError(unknown(key, key, _KEYS))
    for group in ("backbone", "task"):
        if not isinstance(content[group], dict):
            raise UserError(f"{group}: expected keys with values, got {content[group]!r}.")
    name = str(content["name"])
    if leads_out(name) or visible(name) != name:
        raise UserError(
            f"name={visible(name)}: expected a folder below outputs, such as name=my_runs."
        )
    seeds = {key: content[key] for key in ("seed", "data_seed")}
    for key, value in (seeds | {"pretraining.seed": content["pretraining"]["seed"]}).items():
        if not 0 <= int(value) < 2**32:
            raise UserError(f"{key}={value}: expected a number from 0 to {2**32 - 1}.")
    # Paths: shells leave `a=~/b` as it is.
    data_dir = content["data_dir"] or os.environ.get("PTRUN_DATA")
    path = content["backbone"].get("path")
    content["data_dir"] = data_dir and os.path.expanduser(data_dir)
    # The options by name, as results and ids have them.
    tracking = content["tracking"]
    trackers = [key for key in tracking if key not in ("_target_", "own")]
    trackers += tracking.get("own") or {}
    names = {
        group: str(choices.get(group, ",".join(trackers) or "none")) for group in schema.GROUPS
    }
    if path:
        content["backbone"]["path"] = os.path.expanduser(path)
        names["backbone"] = Path(content["backbone"]["path"]).resolve().name
    elif names["backbone"] == "hub" and content["backbone"].get("hub"):
        repository = content["backbone"]["hub"].rpartition("/")[2]
        names["backbone"] = _UNSAFE.sub("_", repository)[:_LONGEST]
    task = content["task"]
    for part in ("train", "dev", "test", "vocabulary"):  # files of `task=csv`, of facts
        if isinstance(task.get(part), str):
            task[part] = os.path.expanduser(task[part])
    source = task["hub"] if "hub" in task else task.get("train")
    if source and isinstance(source, str):
        table = Path(str(task.get("name") or source)).name
        stem = re.sub(f"({KINDS})?({PACKED})?$", "", table, flags=re.IGNORECASE)
        names["task"] += "_" + _UNSAFE.sub("_", stem)[:_LONGEST]
    return Composed(content, names, typed=list(typed))


def compose_run(
    overrides: Sequence[str] = (),
    *,
    given: Mapping[str, Any] | None = None,
    changed: Mapping[str, Any] | None = None,
) -> Composed:
    """Return the configuration of one run.

    Groups of `given` replace the composed ones; keys of `changed` are merged over everything.
    """
    tell_untrusted()
    typed = [override.lstrip("+~").partition("=")[0] for override in overrides]
    for key in typed:
        if key.startswith(("hydra.", "hydra/")):
            raise UserError(
                f"{key}: Hydra's own settings have no effect. Leave it out; outputs=DIR and "
                "name=NAME say where runs go, sweep.devices=N does several at a time."
            )
    try:
        root, choices = _composed(overrides)
        with open_dict(root):
            root.update(given or {})
            root.merge_with(changed or {})
        content = plain(root)
    except ERRORS as error:
        raise explain(error, overrides) from error
    _tell_replaced(choices)
    return _resolved(content, choices, typed)


def _tell_replaced(choices: Mapping[str, Any]) -> None:
    """Say once which of the picked options of ptrun a file of a user's folder replaces, and how."""
    folders = [*user_dirs(), conf_dir()]
    for group, picked in choices.items() if folders[1:] else ():
        for option in picked if isinstance(picked, list) else [picked]:
            files = [folder / group / f"{option}.yaml" for folder in folders]
            file, shipped = next((file for file in files if file.is_file()), None), files[-1]
            if file is not None and file != shipped and shipped.is_file():
                before, after = (flat(plain_yaml.read(f) or {}) for f in (shipped, file))
                changed = [
                    f"{key}={after.get(key)!r} (was {before.get(key)!r})"
                    for key in sorted(before.keys() | after.keys())
                    if before.get(key) != after.get(key)
                ]
                text = ", ".join(changed[:_SHOWN]) + ", ..." * (len(changed) > _SHOWN)
                warn_once(visible(f"{os.path.relpath(file)} replaces ptrun's own: {text}"))


def _composed(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, Any]]:
    """Return the root of a run, and the options of its groups.

    Hydra reads the files once for runs that pick the same options. Their other overrides set plain
    values in a copy, as Hydra does after it has read the files.
    """
    # 1 The overrides as Hydra reads them; a model of the hub needs no option.
    loose = [loosen(override) for override in overrides]
    typed = {override.partition("=")[0] for override in overrides}
    if "backbone.hub" in typed and "backbone" not in typed:
        loose.append("backbone=hub")
    # 2 Those that set one value, and those for which Hydra reads files.
    values = [value for override in loose if (value := _plain_value(override)) is not None]
    keys = [value.key_or_group for value in values]
    if any(other.startswith(f"{key}.") for key in keys for other in keys):
        values = []  # one replaces what another is in
    lines = {value.input_line for value in values}
    # 3 The root of these options, with the values in it.
    shared, choices = _picked(tuple(o for o in loose if o not in lines), sources())
    root = deepcopy(shared)
    try:
        for value in values:
            add = value.is_force_add()
            OmegaConf.update(root, value.key_or_group, value.value(), force_add=add)
    except OmegaConfBaseException:
        _picked(tuple(loose), sources())  # Hydra's own error says more
        raise
    return root, choices


@cache
def _plain_value(override: str) -> Override | None:
    """Return an override that sets one value; None if Hydra must read the files again for it."""
    key = override.lstrip("+").partition("=")[0]
    if {"/", "@"} & {*key} or not ("." in key or key in _ROOT_KEYS):
        return None
    try:
        read: Override = OverridesParser.create().parse_override(override)
    except HydraException:
        return None
    single = read.type is OverrideType.CHANGE or read.is_force_add()
    ordinary = single and not read.is_sweep_override() and not read.is_hydra_override()
    return read if ordinary and not isinstance(read.value(), dict | list) else None


@lru_cache(maxsize=32)
def _picked(picks: tuple[str, ...], _sources: tuple[Any, ...]) -> tuple[DictConfig, dict[str, Any]]:
    """Compose the root of a choice of options, once while the user's files stay as they are."""
    active = GlobalHydra.instance().hydra  # only one can be: it is put back
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            config = compose("run", list(picks), return_hydra_config=True)
    finally:
        GlobalHydra.instance().hydra = active
    choices = OmegaConf.to_container(config.hydra.runtime.choices)
    assert isinstance(choices, dict)
    with open_dict(config):
        config.pop("hydra")
    return config, {str(key): value for key, value in choices.items()}


def sources() -> tuple[Any, ...]:
    """Return what identifies the folders of options, with the states of the user's files."""
    folders = [*user_dirs(), *package_dirs()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.yaml"))]
    states = [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files if f.is_file()]
    return (str(conf_dir()), *map(str, folders), *states)
