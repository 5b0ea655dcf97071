"""The files of a new method, task, backbone or cluster, made from the templates in this folder."""

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from ptrun.config.paths import options
from ptrun.errors import UserError

HERE = Path(__file__).parent
CONF, CODE = Path("ptrun_conf"), Path("ptrun_parts")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_name(group: str, name: str) -> None:
    """Refuse a name that no file or class can have, or that an option has.

    Raises:
        UserError: says what a name looks like, or which file has it.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"{name!r} cannot be a name. Use small letters, digits and _, beginning with a letter, "
            f"such as ptrun new {group} my_{group}."
        )
    if (file := options(group).get(name)) is not None:
        raise UserError(f"{group}={name} exists: {file}. Choose another name.")


def option(group: str, name: str, template: str, **facts: str) -> dict[Path, str]:
    """Return the YAML file of an option and its text."""
    text = Template((HERE / f"{template}.yaml").read_text("utf-8"))
    filled = text.substitute(name=name, **{"class": class_name(name), **facts})
    return {CONF / group / f"{name}.yaml": filled}


def code(name: str, example: str) -> dict[Path, str]:
    """Return the file of a class and its text: an example under another name.

    Args:
        name: the name of the option.
        example: `method` or `task`.
    """
    text = (HERE / f"example_{example}.py").read_text("utf-8")
    own = text.replace(f"Example{example.capitalize()}", class_name(name))
    return {CODE / f"{name}.py": own}


def class_name(name: str) -> str:
    """Return the name of the class of an option: `MyShift` for `my_shift`."""
    return "".join(part.capitalize() for part in name.split("_"))


def method(name: str) -> Mapping[Path, str]:
    """Return the files of a new method."""
    return {**option("method", name, "method"), **code(name, "method")}


def backbone(name: str) -> Mapping[Path, str]:
    """Return the file of a new backbone."""
    return option("backbone", name, "backbone")


def cluster(name: str) -> Mapping[Path, str]:
    """Return the file of a new cluster."""
    return option("cluster", name, "cluster")
