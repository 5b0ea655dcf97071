"""Print a script that completes command lines in bash or zsh.

It completes commands, options, groups with their values, keys, and run ids below ./outputs.
"""

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

from ptrun.config.arguments import Parser
from ptrun.config.paths import options
from ptrun.config.schema import LISTED, RunConfig

EXAMPLES = """\
  source <(ptrun completion bash)             in this shell; add the line to ~/.bashrc to keep it
  source <(ptrun completion zsh)              the same for zsh, in ~/.zshrc
"""
_BASH = """\
_ptrun() {
  local line="${COMP_LINE:0:COMP_POINT}" word
  word="${line##* }"
  local cut="${word%"${word##*[=,:]}"}"
  COMPREPLY=()
  while IFS= read -r found; do COMPREPLY+=("${found#"$cut"}"); done \\
    < <(ptrun completion --line "$line" 2>/dev/null)
  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -F _ptrun ptrun
"""
_ZSH = """\
_ptrun() {
  local -a found
  found=("${(@f)$(ptrun completion --line "${LBUFFER}" 2>/dev/null)}")
  compadd -S '' -- $found
}
compdef _ptrun ptrun
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("completion", __doc__, EXAMPLES)
    made.add_argument("shell", nargs="?", choices=["bash", "zsh"], default="bash", help="the shell")
    made.add_argument("--line", metavar="TEXT", help="print the ends of this line, for the script")
    return made


def main(arguments: Sequence[str]) -> None:
    """Print the script, or the completions of a line."""
    given = parser().parse(arguments)
    if given.line is None:
        print(_BASH if given.shell == "bash" else _ZSH, end="")
        return
    from ptrun.config.arguments import commands, load

    words = given.line.split(" ")[1:] or [""]
    options = []
    if words[0] in commands():
        options = [
            flag for action in load(words[0]).parser()._actions for flag in action.option_strings
        ]
    for found in completed(words, commands(), options):
        print(found)


# The possible ends of a command line, for `ptrun completion`.

_OF_RUNS = ("predict", "rerun", "diff", "export")  # commands that take runs
_FLAGS = ("true", "false")
_PLAIN = re.compile(r"[\w./~=+-]+", re.ASCII)


def completed(words: Sequence[str], commands: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return the words that the last one may become.

    Args:
        words: those after `ptrun`; the last one is not finished, and may be empty.
        commands: all commands.
        flags: the options of the command that was typed.
    """
    last = words[-1]
    if "=" in last:
        return _values(last)
    first = [] if len(words) > 1 else list(commands)
    runs = _runs() if len(words) > 1 and words[0] in _OF_RUNS else []
    found = [*first, *flags, *runs, *(f"{key}=" for key in keys())]
    return sorted(word for word in found if word.startswith(last))


def keys() -> dict[str, Any]:
    """Return groups and keys of the configuration with their types; a group's type is None."""
    return {**_keys(RunConfig, ""), **dict.fromkeys(LISTED)}


def _keys(kind: Any, before: str) -> dict[str, Any]:
    hints, found = get_type_hints(kind), dict[str, Any]()
    for one in fields(kind):
        inside = hints[one.name]
        own = _keys(inside, f"{before}{one.name}.") if is_dataclass(inside) else None
        found |= own if own is not None else {f"{before}{one.name}": inside}
    return found


def _values(word: str) -> list[str]:
    """Return the values of a key; in a sweep each value after a comma is completed."""
    key, _, typed = word.partition("=")
    before, comma, last = typed.rpartition(",")
    known = keys()
    if key in LISTED:
        allowed = [name for name in options(key) if _PLAIN.fullmatch(name)]
    elif isinstance(known.get(key), type) and issubclass(known[key], StrEnum):
        allowed = [str(value) for value in known[key]]
    else:
        allowed = list(_FLAGS) if known.get(key) is bool else []
    return [f"{key}={before}{comma}{value}" for value in allowed if value.startswith(last)]


def _runs() -> list[str]:
    """Return run folders whose names the shell would not read as a command."""
    found = (str(file.parent) for file in sorted(Path("outputs").glob("*/*/result.json")))
    return [name for name in found if _PLAIN.fullmatch(name)]
