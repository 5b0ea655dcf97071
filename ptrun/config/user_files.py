"""What a user's configuration files may set: components and training, nothing outside the run.

`./ptrun_conf` is read wherever ptrun is started, so it may come from somebody else. Without
`allow_code=true` its files may not set Hydra (whose callbacks and launchers are code) or the
folder that is written to.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from ptrun.config import plain_yaml
from ptrun.config.components import code_allowed
from ptrun.config.paths import leads_out
from ptrun.errors import UserError

_REFUSED = ("hydra", "outputs")
_PACKAGE = re.compile(r"^\s*#\s*@package\s+(\S+)", re.MULTILINE)


def check_user_files(folder: Path) -> None:
    """Refuse a folder of configuration files that sets more than a run's own parts.

    Raises:
        UserError: the first file that does, or that is not YAML.
    """
    if code_allowed():
        return
    for file in sorted(folder.rglob("*.yaml")):
        if key := _refused(file, folder):
            raise UserError(
                f"{file} sets {key!r}, which a configuration file may not do. "
                "Remove it, or type allow_code=true if you trust this folder."
            )


def _refused(file: Path, folder: Path) -> str | None:
    """Return the key that a file may not set, if there is one."""
    group = file.relative_to(folder).parts[0]
    try:
        text = file.read_text("utf-8")
        content = plain_yaml.load(text)
    except (yaml.YAMLError, OSError, RecursionError, ValueError) as error:
        raise UserError(f"{file} is not readable YAML: {str(error).splitlines()[0]}.") from error
    if called := plain_yaml.call(content):
        return called
    root = content if isinstance(content, dict) else {}
    parts = [group, *_PACKAGE.findall(text), *map(str, _defaults(root)), *map(str, root)]
    words = [re.split(r"[./@ ]", part.removeprefix("override ").lstrip("/"))[0] for part in parts]
    if leads_out(name := str(root.get("name", "own"))) or "${" in name:
        return "name"  # a sweep makes this folder
    return next((word for word in words if word in _REFUSED), None)


def _defaults(root: dict[Any, Any]) -> list[Any]:
    """Return the entries of a defaults list, without their options."""
    entries = root.get("defaults")
    entries = entries if isinstance(entries, list) else []
    return [key for entry in entries for key in (entry if isinstance(entry, dict) else [entry])]
