"""Recognise a finished run in half a second, before torch is imported.

The id of a run depends on the content of files: data, weights, own code. `<outputs>/.planned` keeps
for a composed configuration which run it was, and the state of every file that its plan opened. If
nothing has changed since, the result is read at once. Otherwise the run is planned as usual.
"""

import hashlib
import json
import logging
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import ptrun
from ptrun import __version__
from ptrun.config.compose import Composed
from ptrun.config.identity import NOT_OF_A_RUN, canonical
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError
from ptrun.files import below, read_json, write_text
from ptrun.folder import result
from ptrun.types import RunResult

_LOG = logging.getLogger(__name__)
_FOLDER = ".planned"
_OTHERS = tuple(
    os.path.join(folder, "")
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(ptrun.__file__).parent),
        str(conf_dir()),
        "/proc",
        "/sys",
    )
)
"""Folders of code and options: the composed configuration has what matters of them."""
_opened: set[str] | None = None
_hooked = False


def finished(composed: Composed) -> RunResult | None:
    """Return the result of a run that is known to be finished; None if it has to be planned."""
    try:
        kept = read_json(_file(composed))
        folder, files = Path(kept["folder"]), dict(kept["files"])
        if folder.parent != Path(composed.outputs, composed.name).absolute():
            return None  # somebody else wrote it
        if composed.rerun or files != _states(files, composed.outputs):
            return None
        return result.read_named(folder) if (folder / result.FINISHED).is_file() else None
    except (OSError, ValueError, TypeError, KeyError, UserError):
        return None  # planning the run reports what is wrong


@contextmanager
def opened_files() -> Iterator[set[str]]:
    """Collect the files that Python opens, without those of Python and its packages."""
    global _opened, _hooked
    if not _hooked:
        sys.addaudithook(_see)  # stays for the life of the process
        _hooked = True
    before, _opened = _opened, set()
    try:
        yield _opened
    finally:
        _opened = before


def remember(composed: Composed, folder: Path, files: Mapping[str, str]) -> None:
    """Keep which run a configuration is; where that is not possible it is planned again."""
    try:
        file = _file(composed)
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"folder": str(folder.absolute()), "files": dict(files)}
        write_text(file, json.dumps(content))
    except OSError as error:
        _LOG.info("%s: not written (%s)", error.filename, error.strerror)


def states(opened: Iterable[str], model: Path | None, outputs: Path) -> dict[str, str]:
    """Return the state of opened files, of a model's folder, and of the folders around them.

    The hash of large weights is kept elsewhere, so their file is not opened each time.
    """
    files = {str(Path(path).absolute()) for path in opened}
    if model is not None:
        files |= {str(path.absolute()) for path in model.iterdir()}
    folders = {str(Path(path).parent) for path in files}
    return _states(sorted(files | folders), outputs)


def _see(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is None or event != "open" or not isinstance(arguments[0], str | os.PathLike):
        return
    path = os.path.abspath(os.fspath(arguments[0]))
    if isinstance(path, str) and not path.startswith(_OTHERS):
        _opened.add(path)


def _states(paths: Iterable[str], outputs: Path) -> dict[str, str]:
    return {path: _state(Path(path), outputs) for path in paths}


def _state(path: Path, outputs: Path) -> str:
    """Return size and time of a file, or a hash of the names in a folder."""
    if path.is_dir():
        names = sorted(name for name in os.listdir(path) if name != outputs.name)
        return hashlib.sha256("/".join(names).encode()).hexdigest()[:16]
    if not path.exists():
        return "missing"
    state = path.stat()
    return f"{state.st_size} {state.st_mtime_ns}"


def _file(composed: Composed) -> Path:
    """Return the file of a configuration, typed here, in this version of the code."""
    config = {k: value for k, value in composed.config.items() if k not in NOT_OF_A_RUN}
    names = {k: name for k, name in composed.names.items() if k not in NOT_OF_A_RUN}
    typed = [names, config, str(Path.cwd()), __version__, _code()]
    key = hashlib.sha256(canonical(typed).encode()).hexdigest()[:24]
    return below(composed.outputs, _FOLDER, f"{key}.json")


@cache
def _code() -> str:
    """Return a hash of the state of ptrun's own files, as they were first seen in this process."""
    files = sorted(Path(ptrun.__file__).parent.rglob("*.py"))
    states = [(str(file), file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(canonical(states).encode()).hexdigest()
