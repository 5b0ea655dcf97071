"""Print a script that completes command lines in bash or zsh.

It completes commands, options, groups with their values, keys, and run ids below ./outputs.
"""

from collections.abc import Sequence

from ptrun.config.arguments import Parser

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
    from ptrun.config.commands import commands, load
    from ptrun.config.completing import completed

    words = given.line.split(" ")[1:] or [""]
    options = []
    if words[0] in commands():
        options = [
            flag for action in load(words[0]).parser()._actions for flag in action.option_strings
        ]
    for found in completed(words, commands(), options):
        print(found)
