"""Which folders the user trusts: their options count, and the classes that these name.

`./ptrun_conf` and `$PTRUN_CONFIG_DIR` may come from somebody else, and a class is code. So they
count only below a folder in which `ptrun trust` was typed once. As in editors, what is in it may
change later. `PTRUN_TRUST=1` trusts every folder: for CI, containers and notebooks. Nothing in a
run folder, a model folder, a data file or `ptrun_conf` can give trust.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptrun.errors import UserError, visible, warn_once
from ptrun.files import read_json, write_text

TRUST = "PTRUN_TRUST"
OPTIONS = Path("ptrun_conf")
"""The folder of options of a project, below the current folder."""


def home() -> Path:
    """Return the folder of the user's own settings; a relative `$XDG_CONFIG_HOME` is ignored."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(config if os.path.isabs(config) else "~/.config").expanduser() / "ptrun"


def folders() -> list[Path]:
    """Return the folders in which `ptrun trust` was typed."""
    file = home() / "trusted.json"
    try:
        names = read_json(file, links=True)
        if not isinstance(names, list) or not all(map(os.path.isabs, names)):
            raise ValueError("no list of absolute paths")
        return [Path(name) for name in names]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{file}: damaged ({error}). Delete it, and type ptrun trust.") from error


def is_trusted(folder: Path) -> bool:
    """Return whether the user trusts a folder or one above it."""
    if (value := os.environ.get(TRUST) or "0") not in ("0", "1"):
        raise UserError(f"{TRUST}={value}: expected 1, to trust every folder, or 0.")
    if value == "1":
        return True
    place = folder.resolve()
    return any(place.is_relative_to(trusted) for trusted in folders())


def trust(folder: Path) -> None:
    """Trust a folder and what lies below it."""
    _write([*folders(), folder.resolve()])


def remove(folder: Path) -> None:
    """Take the trust in a folder back, where it was given: not one to a folder above."""
    place, trusted = folder.resolve(), folders()
    if place not in trusted:
        above = next((other for other in trusted if place.is_relative_to(other)), None)
        told = f"It is below {above}, which is trusted." if above else "See ptrun trust --list."
        raise UserError(f"{visible(str(place))} is not in the list. {told}")
    _write([other for other in trusted if other != place])


@contextmanager
def new_options() -> Iterator[None]:
    """Trust the current folder if its first options are made meanwhile, and print a line.

    Others, there or in a folder below, may be somebody else's.
    """
    place, others = Path.cwd().resolve(), OPTIONS.exists() or Path("ptrun_parts").exists()
    yield
    if not OPTIONS.exists() or is_trusted(place):
        return
    above_all = Path.home().resolve().is_relative_to(place)
    if others or above_all or any(place.glob(f"*/**/{OPTIONS}")):
        print(f"{OPTIONS} is not trusted: read what was in it, and type: ptrun trust")
        return
    trust(Path.cwd())
    print(f"trusted {visible(os.getcwd())}; ptrun trust --remove takes it back")


def tell_untrusted() -> None:
    """Say once that the options of the current folder are not read, and what to type."""
    if os.environ.get(TRUST):
        return
    named = os.environ.get("PTRUN_CONFIG_DIR")
    for folder in (Path.cwd() / OPTIONS, *([Path(named)] if named else [])):
        if folder.is_dir() and not is_trusted(folder):
            name, here = visible(str(folder)), folder == Path.cwd() / OPTIONS
            warn_once(
                f"{name} is not read, because you have not trusted this folder. If you do, type: "
                f"ptrun trust{'' if here else f' {name}'}"
            )
            os.environ[TRUST] = "0"  # the processes that this one starts do not say it again


def _write(trusted: list[Path]) -> None:
    """Write the list of folders atomically."""
    home().mkdir(parents=True, exist_ok=True)
    names = sorted({str(folder) for folder in trusted})
    write_text(home() / "trusted.json", json.dumps(names, indent=1) + "\n")
