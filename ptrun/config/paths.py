"""The folders of configuration files: those of the user, of ptrun, and of installed packages.

A package adds options with an entry point of the group `ptrun.conf`, whose value is the dotted name
of a folder in it: `my_package.conf`. The folder is found without importing the package. It adds
commands and kinds of imports with the groups `ptrun.commands` and `ptrun.imports`.
"""

import os
import re
import sys
from functools import cache
from importlib.metadata import EntryPoint, distributions
from importlib.util import find_spec
from pathlib import Path, PurePath

from ptrun.config.trust import OPTIONS, home, is_trusted
from ptrun.errors import visible, warn_once
from ptrun.files import read_text

PACKAGE = Path(__file__).resolve().parent.parent
ENTRY_POINTS = "ptrun.conf"
_OPTION = re.compile(r"[\w.+-]+")
_LARGEST = 1_000_000  # bytes of a file of options


def conf_dir() -> Path:
    """Return the shipped `conf/`: inside the package if installed, beside it in a checkout."""
    installed = PACKAGE / "conf"
    return installed if installed.is_dir() else PACKAGE.parent / "conf"


def user_dirs() -> list[Path]:
    """Return the configuration folders before ptrun's own, the first one first.

    `$PTRUN_CONFIG_DIR` and `./ptrun_conf`, if the user trusts them, and `~/.config/ptrun/conf`.
    """
    named = os.environ.get("PTRUN_CONFIG_DIR")
    folders = [Path(named)] if named and is_trusted(Path(named)) else []
    folders += [OPTIONS] if OPTIONS.is_dir() and is_trusted(Path.cwd()) else []
    return [folder.resolve() for folder in [*folders, home() / "conf"] if folder.is_dir()]


def package_dirs() -> list[Path]:
    """Return the folders that installed packages declare, in the order of their entry points.

    They come after ptrun's own, so a package adds options and replaces none.
    """
    folders = map(_folder, entry_points(ENTRY_POINTS))
    return [folder for folder in folders if folder is not None]


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of installed packages, in the order of their names.

    What lies in the current folder is not installed, although `python -m ptrun` looks for modules
    there.
    """
    installed = tuple(path for path in sys.path if path not in ("", os.getcwd()))
    return [entry for entry in _declared(installed) if entry.group == group]


@cache
def _declared(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    packages = distributions(path=[*path])
    every = {entry for package in packages for entry in package.entry_points}
    entries = [entry for entry in every if entry.group.startswith("ptrun.")]
    return tuple(sorted(entries, key=lambda entry: (entry.name, entry.value)))


def _folder(entry: EntryPoint) -> Path | None:
    """Return the folder of an entry point; a package without it is warned about and left out."""
    top, *below = entry.value.split(".")
    try:
        spec = find_spec(top)  # a name without dots is found, not imported
    except (ImportError, ValueError):
        spec = None
    places = [Path(root, *below) for root in (spec and spec.submodule_search_locations) or ()]
    folder = next((place.resolve() for place in places if place.is_dir()), None)
    if folder is None:
        warn_once(
            f"A package declares options with {ENTRY_POINTS} = {entry.name}:{entry.value}, but has "
            "no such folder. Repair or uninstall it."
        )
    return folder


def options(group: str) -> dict[str, Path]:
    """Return the options of a group and their files: the user's, ptrun's, those of packages.

    Of two files of one name the first counts.
    """
    files: dict[str, Path] = {}
    for folder in [*user_dirs(), conf_dir(), *package_dirs()]:
        for file in sorted((folder / group).glob("*.yaml")):
            if _OPTION.fullmatch(file.stem):
                files.setdefault(file.stem, file)
            else:
                warn_once(f"{visible(str(file))}: the name of an option has letters, digits and _")
    return dict(sorted(files.items()))


def leads_out(name: str) -> bool:
    """Return whether a name is not a path below a folder."""
    path = PurePath(name)
    return not path.parts or path.is_absolute() or ".." in path.parts


def describe(file: Path) -> str:
    """Return the first comment line of a configuration file that is not a Hydra directive.

    A file that cannot be read has none.
    """
    try:
        lines = read_text(file, "replace", limit=_LARGEST, links=True).splitlines()
    except OSError:
        return ""
    for line in lines:
        if line.startswith("#") and "@package" not in line:
            return visible(line.lstrip("# ").strip())
    return ""
