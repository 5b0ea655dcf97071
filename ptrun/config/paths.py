"""The folders of configuration files: those of ptrun and those of the user."""

import os
from pathlib import Path, PurePath

PACKAGE = Path(__file__).resolve().parent.parent


def conf_dir() -> Path:
    """Return the shipped `conf/`: inside the package if installed, beside it in a checkout."""
    installed = PACKAGE / "conf"
    return installed if installed.is_dir() else PACKAGE.parent / "conf"


def user_dirs() -> list[Path]:
    """Return the user's configuration folders that exist: `$PTRUN_CONFIG_DIR`, `./ptrun_conf`."""
    named = os.environ.get("PTRUN_CONFIG_DIR")
    candidates = [Path(named)] if named else []
    return [path.resolve() for path in [*candidates, Path("ptrun_conf")] if path.is_dir()]


def options(group: str) -> dict[str, Path]:
    """Return the options of a group and their files. The user's files come first."""
    files: dict[str, Path] = {}
    for folder in [*user_dirs(), conf_dir()]:
        for file in sorted((folder / group).glob("*.yaml")):
            files.setdefault(file.stem, file)
    return dict(sorted(files.items()))


def leads_out(name: str) -> bool:
    """Return whether a name is not a path below a folder."""
    path = PurePath(name)
    return not path.parts or path.is_absolute() or ".." in path.parts


def describe(file: Path) -> str:
    """Return the first comment line of a configuration file that is not a Hydra directive."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and "@package" not in line:
            return line.lstrip("# ").strip()
    return ""
