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

from ptrun.config.components import targets
from ptrun.config.compose import Composed
from ptrun.config.identity import NOT_OF_A_RUN, canonical
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
    if config["start"] or not all(path.startswith("ptrun.") for path in targets(config)):
        return None
    read = {key: value for key, value in config.items() if key not in ("name", "outputs")}
    try:
        files = {path: os.stat(path) for path in islice(paths_of(read), _MOST)}
    except OSError:
        return None
    states = {path: [state.st_size, state.st_mtime_ns] for path, state in files.items()}
    content = [__version__, names, config, os.getcwd(), states]
    key = hashlib.sha256(canonical(content).encode()).hexdigest()[:24]
    return key if len(files) < _MOST else None


def remember(composed: Composed, folder: Path, key: str | None) -> None:
    """Keep which run a key is; where that is not possible it is planned again."""
    if key is not None:
        with suppress(OSError):
            file = below(composed.outputs, ".planned", key)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, folder.name)


def paths_of(value: object) -> Iterator[str]:
    """Yield the paths that the texts of a configuration name: all below a folder, all that fit a *.

    A link may lead around in a circle, without end.
    """
    if isinstance(value, Mapping | list | tuple):
        for inside in value.values() if isinstance(value, Mapping) else value:
            yield from paths_of(inside)
    elif isinstance(value, str) and value:
        folder, name = os.path.split(os.path.expanduser(value.removeprefix("@")))
        there = os.listdir(folder or ".") if "*" in name and os.path.isdir(folder or ".") else []
        for path in (os.path.join(folder, beside) for beside in [name, *fitting(there, name)]):
            if os.path.exists(path):
                yield path
            for place, folders, files in os.walk(path, followlinks=True):
                yield from (os.path.join(place, inside) for inside in (*folders, *files))
