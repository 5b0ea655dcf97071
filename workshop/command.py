"""What the commands of the workshop share: help, overrides, and an error as one line."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config import build
from ptrun.config.arguments import Parser
from ptrun.config.components import TARGET, targets
from ptrun.errors import RunFailed, UserError, explained
from ptrun.hardware.environment import log_to_stderr, prepare, print_error

T = TypeVar("T")


def keys_of(recipe: type) -> str:
    """Return the part of a help text that describes the keys of a recipe, from its docstring."""
    return "keys:\n" + inspect.cleandoc(recipe.__doc__ or "").split("Args:\n", 1)[1]


def overrides(
    command: str, description: str | None, examples: str, keys: str, arguments: Sequence[str]
) -> tuple[str | None, list[str]]:
    """Return the NAME of the last `backbone=NAME`, or None, and the other overrides.

    Raises:
        UserError: a word is not KEY=VALUE.
    """
    parser = Parser(command, description, examples)
    parser.prog = f"python -m workshop.{command}"
    parser.overrides("backbone=NAME and the keys below")
    parser.epilog = f"{keys}\n\n{parser.epilog}"
    name, others = None, []
    for override in parser.parse(arguments).overrides:
        if override.startswith("backbone="):
            name = override.removeprefix("backbone=")
        else:
            others.append(override)
    return name, others


def settings(name: str, recipe: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Return the recipe of a command from its keys; no value names a component."""
    if any(True for _ in targets(values)):
        raise UserError(f"{name}: a component is not allowed here. Remove its {TARGET}.")
    if lines := build.problems(name, values, part=recipe):
        raise UserError("\n".join(lines))
    return recipe(**values)


def merged(command: str, overrides: Sequence[str], defaults: Any = None) -> dict[str, Any]:
    """Return the defaults with some overrides, as plain data.

    Raises:
        UserError: an override cannot be read.
    """
    try:
        node = OmegaConf.merge(defaults or {}, OmegaConf.from_dotlist(list(overrides)))
    except OmegaConfBaseException as error:
        raise UserError(f"{command}: {str(error).splitlines()[0]}") from error
    return build.plain(node)  # type: ignore[arg-type]


def device(name: str) -> Literal["cpu", "cuda"]:
    """Return the device that `auto` stands for, or the named one.

    Raises:
        UserError: this machine has no CUDA.
    """
    import torch

    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise UserError("device=cuda: this machine has no CUDA; type device=cpu.")
    return "cuda" if has_cuda and name != "cpu" else "cpu"


def run(main: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    """Run a command, print what failed in one line, and return the exit code."""
    prepare()
    log_to_stderr()
    try:
        main(arguments)
    except Exception as error:
        known = isinstance(error, (UserError, RunFailed))
        if (message := error if known else explained(error)) is None:
            raise
        print_error(message)
        return 1
    return 0
