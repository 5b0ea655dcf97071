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

PARSER = Parser("completion", __doc__, EXAMPLES)
PARSER.add_argument("shell", nargs="?", choices=["bash", "zsh"], default="bash", help="the shell")
PARSER.add_argument("--line", metavar="TEXT", help="print the ends of this line, for the script")


def main(arguments: Sequence[str]) -> None:
    """Print the script, or the completions of a line."""
    args = PARSER.parse(arguments)
    if args.line is None:
        print(_BASH if args.shell == "bash" else _ZSH, end="")
        return
    from ptrun.config.arguments import commands, load

    words = args.line.split(" ")[1:] or [""]
    module = load(words[0])
    for word in completed(words, [*commands()], module.PARSER.flags if module else []):
        print(word)


# The possible ends of a command line, for `ptrun completion`.

_OF_RUNS = ("predict", "rerun", "diff", "export")  # commands that take runs
_PLAIN = re.compile(r"[\w./~=+-]+", re.ASCII)


def completed(words: Sequence[str], commands: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return the words that the last word after `ptrun` may become.

    It is not finished, and may be empty. `flags` are the options of the command that was typed.
    """
    last = words[-1]
    if "=" in last:
        return _values(last)
    ends = [*flags, *(f"{key}=" for key in keys())]
    if len(words) == 1:
        ends += commands
    elif words[0] in _OF_RUNS:
        folders = (str(file.parent) for file in sorted(Path("outputs").glob("*/*/result.json")))
        ends += filter(_PLAIN.fullmatch, folders)  # the shell reads other names as commands
    return sorted(end for end in ends if end.startswith(last))


def keys() -> dict[str, Any]:
    """Return groups and keys of the configuration with their types; a group's type is None."""
    return {**_keys(RunConfig, ""), "continue": str, **dict.fromkeys(LISTED)}


def _keys(kind: Any, before: str) -> dict[str, Any]:
    hints, types = get_type_hints(kind), dict[str, Any]()
    for field in fields(kind):
        key, hint = f"{before}{field.name}", hints[field.name]
        types |= _keys(hint, f"{key}.") if is_dataclass(hint) else {key: hint}
    return types


def _values(word: str) -> list[str]:
    """Return the values of a key; in a sweep each value after a comma is completed."""
    key, _, typed = word.partition("=")
    before, comma, last = typed.rpartition(",")
    types = keys()
    if key in LISTED:
        allowed = [name for name in options(key) if _PLAIN.fullmatch(name)]
    elif isinstance(types.get(key), type) and issubclass(types[key], StrEnum):
        allowed = [str(value) for value in types[key]]
    else:
        allowed = ["true", "false"] if types.get(key) is bool else []
    return [f"{key}={before}{comma}{value}" for value in allowed if value.startswith(last)]
