"""Configuration files of somebody else: how they are read, and what of a result counts.

`./ptrun_conf` and `$PTRUN_CONFIG_DIR` are read wherever ptrun is started, so they may come from
somebody else, and so may the options of a package. Without `allow_code=true` they may set the
parts of a run, and nothing that acts outside of it: `OUTSIDE`. What is checked is the composed
configuration, because a file can set a key in many ways. The user's own files, in
`$XDG_CONFIG_HOME/ptrun/conf`, may set all.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from ptrun.config import plain_yaml
from ptrun.config.components import code_allowed
from ptrun.config.identity import flat
from ptrun.config.paths import (
    conf_dir,
    home,
    leads_out,
    others_dirs,
    own_dir,
    package_dirs,
    user_dirs,
)
from ptrun.errors import UserError, visible
from ptrun.files import read_text

_LOG = logging.getLogger(__name__)
SCHEME = "ptrun"
OUTSIDE = ("hydra", "outputs", "sweep.on", "cluster.setup", "cluster.sbatch", "tracking")
"""Keys that act outside a run: where it writes, what starts elsewhere, what is sent away."""
_OF_HYDRA = ("overrides", "runtime", "job.override_dirname")  # these repeat what was typed
_LARGEST = 1_000_000  # bytes of a file
_ENVIRONMENT = "oc.env"
_PACKAGE = re.compile(r"^\s*#\s*@package\s+(\S+)", re.MULTILINE)
_SHOWN = 6  # changed keys that are named
_ALLOW = "Remove it, or type allow_code=true if you trust this folder."
_UNREADABLE = (yaml.YAMLError, OmegaConfBaseException, OSError, RecursionError)


class OthersFiles(FileConfigSource):
    """A folder of somebody else's configuration files: regular ones that stay inside of it."""

    @staticmethod
    def scheme() -> str:
        """Return the scheme of its address."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """Return the content of a file.

        Raises:
            UserError: it lies outside the folder, is no YAML, or calls a function.
        """
        file = Path(self.path, self._normalize_file_name(config_path))
        if not file.exists():
            raise ConfigLoadError(f"Config not found : {file}")
        text, content = _read(file, Path(self.path))
        return ConfigResult(
            config=content,
            path=f"{SCHEME}://{self.path}",
            provider=self.provider,
            header=ConfigSource._get_header_dict(text),
        )


def _read(file: Path, folder: Path) -> tuple[str, Any]:
    """Return the text of a file, and its content as Hydra reads it."""
    if ".." in file.parts or not file.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{file} leads out of {folder}. {_ALLOW}")
    try:
        text = read_text(file.resolve(), limit=_LARGEST)
        content = plain_yaml.load_plain(text)
        read = _config_of(content)
    except (*_UNREADABLE, ValueError, TypeError) as error:
        told = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise UserError(f"{visible(str(file))} is not readable YAML: {visible(told)}.") from error
    if refused := plain_yaml.call(content) or _refused(file.relative_to(folder), text, content):
        raise UserError(
            f"{visible(str(file))} sets {refused!r}, which a configuration file may not do. "
            f"{_ALLOW}"
        )
    return text, read


def _config_of(content: Any) -> Any:
    """Return what was read as a configuration; nothing is one without keys.

    Raises:
        ValueError: it is a single value.
    """
    if not isinstance(content, dict | list | None):
        raise ValueError("it has no keys")
    return OmegaConf.create(content or {})


def _refused(name: Path, text: str, content: Any) -> str | None:
    """Return what a file plainly sets outside a run; `check_outside` finds every other way."""
    root = content if isinstance(content, dict) else {}
    entries: Any = root.get("defaults")
    entries = entries if isinstance(entries, list) else []
    keys = [key for one in entries for key in (one if isinstance(one, dict) else [one])]
    parts = [name.parts[0], *_PACKAGE.findall(text), *map(str, keys), *map(str, root)]
    words = [re.split(r"[./@ ]", part.removeprefix("override ").lstrip("/"))[0] for part in parts]
    if leads_out(own := str(root.get("name", "own"))) or "${" in own:
        return "name"  # a sweep makes this folder
    return next((word for word in words if word in ("hydra", "outputs", "out")), None)


def load(file: Path) -> Any:
    """Return the content of an option's file that is read without composing, as OmegaConf has it.

    Raises:
        UserError: it is somebody else's and may not set what it sets, or is no readable YAML.
    """
    others = [*others_dirs(), *package_dirs()]
    folder = next((one for one in others if file.is_relative_to(one)), None)
    if folder is None or code_allowed():
        folder, text = file.parent, read_text(file, limit=_LARGEST, links=True)
        return _config_of(plain_yaml.load_plain(text))
    return _read(file, folder)[1]


def addresses() -> list[str]:
    """Return the addresses of the folders before ptrun's own, the first one first."""
    scheme = "file" if code_allowed() else SCHEME
    own = [f"file://{folder}" for folder in own_dir()]
    return [*(f"{scheme}://{folder}" for folder in others_dirs()), *own]


def package_addresses() -> list[str]:
    """Return the addresses of the folders of packages."""
    scheme = "file" if code_allowed() else SCHEME
    return [f"{scheme}://{folder}" for folder in package_dirs()]


def watched() -> bool:
    """Return whether files of somebody else are read that the user has not allowed."""
    return bool(_folders()) and not code_allowed()


def _folders() -> str:
    """Return the folders of somebody else, for a message."""
    return visible(" or ".join(map(os.path.relpath, [*others_dirs(), *package_dirs()])))


@contextmanager
def without_environment() -> Iterator[None]:
    """Let no text read a variable of the environment while files of somebody else are read."""
    if not watched():
        yield
        return
    OmegaConf.register_new_resolver(_ENVIRONMENT, _refuse, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver(_ENVIRONMENT, oc.env, replace=True)


def _refuse(name: str, *_: Any) -> None:
    raise UserError(
        f"${name} is not read while {_folders()} is not trusted; type its value, or allow_code=true"
    )


def check_outside(found: Mapping[str, Any], trusted: Mapping[str, Any]) -> None:
    """Check that files of somebody else set nothing that acts outside a run.

    Args:
        found: the composed configuration, as plain data.
        trusted: the same without their files.

    Raises:
        UserError: a key of `OUTSIDE` differs.
    """
    ours, theirs = _outside(trusted), _outside(found)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            root = next(root for root in OUTSIDE if _is_under(key, [root]))
            yours = f"Type {root}= yourself, put it into {home() / 'conf'}"
            raise UserError(
                f"{_folders()} sets {visible(key)}, which acts outside the run. "
                f"{'Remove it' if root == 'hydra' else yours}, or type allow_code=true if you "
                "trust this folder."
            )


def tell_replaced(choices: Mapping[str, Any]) -> None:
    """Say once which of the picked options of ptrun a file of a user's folder replaces, and how."""
    folders = user_dirs()
    for group, picked in choices.items() if folders else ():
        for option in picked if isinstance(picked, list) else [picked]:
            ours, name = conf_dir() / group / f"{option}.yaml", f"{group}/{option}.yaml"
            theirs = next((f / name for f in folders if (f / name).is_file()), None)
            if theirs is not None and ours.is_file():
                _tell(theirs, ours)


@cache
def _tell(theirs: Path, ours: Path) -> None:
    contents = [plain_yaml.load_plain(read_text(file, links=True)) for file in (ours, theirs)]
    before, after = (flat(own if isinstance(own, dict) else {}) for own in contents)
    changed = [
        f"{key}={after.get(key)!r} (was {before.get(key)!r})"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    text = ", ".join(changed[:_SHOWN]) + more if changed else "nothing"
    _LOG.info(
        "%s replaces ptrun's own and changes %s", *map(visible, (os.path.relpath(theirs), text))
    )


def _outside(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat keys of a configuration that act outside a run."""
    nodes = {key: config.get(key) for key in dict.fromkeys(key.split(".")[0] for key in OUTSIDE)}
    keys = flat({key: value for key, value in nodes.items() if value is not None}, empties=True)
    ignored = tuple(f"hydra.{key}" for key in _OF_HYDRA)
    return {
        key: value
        for key, value in keys.items()
        if _is_under(key, OUTSIDE) and not _is_under(key, ignored)
    }


def _is_under(key: str, roots: Sequence[str]) -> bool:
    return any(key == root or key.startswith(f"{root}.") for root in roots)
