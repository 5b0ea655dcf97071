"""Recognise a finished run in half a second, before torch is imported.

The id of a run depends on the content of files, and its composed configuration names them all.
`<outputs>/.planned` keeps which run a configuration is, under a hash of it and of those files'
sizes and times.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fnmatch import filter as fitting
from itertools import islice
from pathlib import Path
from stat import S_ISDIR

from ptrun.config.components import targets
from ptrun.config.compose import Composed
from ptrun.config.identity import NOT_OF_A_RUN, canonical
from ptrun.config.paths import PACKAGE
from ptrun.errors import UserError
from ptrun.files import below, read_text, write_text
from ptrun.folder import result
from ptrun.types import RunResult, __version__

_MOST = 10_000  # paths that are looked at


def finished(composed: Composed) -> RunResult | None:
    """Return the result of a run that is known to be finished; None if it has to be planned."""
    key = key_of(composed)
    if key is not None and not composed.rerun:
        with suppress(OSError, ValueError, UserError):  # planning the run reports what is wrong
            run_id = read_text(below(composed.outputs, ".planned", key))
            return result.read_named(below(composed.outputs, composed.name, run_id))
    return None


def key_of(composed: Composed) -> str | None:
    """Return what stands for a configuration and its files; None if it may read others."""
    config = {key: value for key, value in composed.config.items() if key not in NOT_OF_A_RUN}
    names = {key: name for key, name in composed.names.items() if key not in NOT_OF_A_RUN}
    own_classes = not all(str(path).startswith("ptrun.") for path in targets(config))
    if own_classes or any(text.startswith("run:") for text in texts_of(config)) or config["start"]:
        return None
    read = {key: value for key, value in config.items() if key not in ("name", "outputs")}
    try:
        paths = list(islice(paths_of(read, os.path.abspath(composed.outputs)), _MOST))
        files = {path: os.stat(path) for path in paths}
    except (OSError, ValueError):
        return None
    states = {
        path: [] if S_ISDIR(s.st_mode) else [s.st_size, s.st_mtime_ns, s.st_ino]
        for path, s in files.items()
    }  # what is in a folder has states of its own
    changed = max(file.stat().st_mtime_ns for file in PACKAGE.rglob("*.py"))  # in a checkout
    content = [__version__, changed, names, config, os.getcwd(), states]
    key = hashlib.sha256(canonical(content).encode()).hexdigest()[:24]
    return key if len(paths) < _MOST else None


def remember(composed: Composed, folder: Path, key: str | None) -> None:
    """Keep which run a key is; where that is not possible it is planned again."""
    if key is not None:
        with suppress(OSError):
            file = below(composed.outputs, ".planned", key)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, folder.name)


def texts_of(value: object) -> Iterator[str]:
    """Yield the texts of a configuration, without spaces around them."""
    if isinstance(value, Mapping | list | tuple):
        for inside in value.values() if isinstance(value, Mapping) else value:
            yield from texts_of(inside)
    elif isinstance(value, str) and value.strip():
        yield value.strip()


def paths_of(value: object, outputs: str = "") -> Iterator[str]:
    """Yield the paths that the texts of a configuration name: all below a folder, all that fit a *.

    The folder of runs is left out. A link may lead around in a circle, without end.
    """
    for text in texts_of(value):
        folder, name = os.path.split(os.path.expanduser(text.removeprefix("@")))
        there = os.listdir(folder or ".") if "*" in name and os.path.isdir(folder or ".") else []
        for path in (os.path.join(folder, beside) for beside in [name, *fitting(there, name)]):
            if os.path.exists(path):
                yield path
            for place, folders, files in os.walk(path, followlinks=True):
                if outputs:
                    folders[:] = [f for f in folders if os.path.abspath(f"{place}/{f}") != outputs]
                yield from (os.path.join(place, inside) for inside in (*folders, *files))
