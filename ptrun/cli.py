"""The command line: find the command that was typed and run it.

`ptrun NAME ...` runs `ptrun/command/NAME.py`, or what an installed package registers as NAME among
the entry points `ptrun.commands`; without a command name it is `ptrun run ...`.
"""

import os
import re
import sys
from collections.abc import Sequence

from ptrun.config.arguments import commands, load
from ptrun.config.components import without_permission
from ptrun.config.paths import options
from ptrun.config.schema import LISTED
from ptrun.errors import RankLost, RunFailed, UserError, explained, folded, is_panic, unknown
from ptrun.hardware.environment import (
    environment,
    log_to_stderr,
    prepare,
    print_error,
    without_local_rank,
)
from ptrun.tracking.trackers import leave
from ptrun.training import stopping
from ptrun.types import __version__

_TRACEBACK = "PTRUN_TRACEBACK"  # set it to see where an error of the system was raised
_HELP = """\
ptrun: config-driven experiments in prompt tuning of pretrained language models
usage: ptrun [COMMAND] [KEY=VALUE ...] [--OPTION ...]
       ptrun method=ptuning_v2 task=conll03 backbone=bert_base_cased
       ptrun -m method=prompt_tuning,ptuning_v2 seed=1,2,3

commands (`ptrun COMMAND --help` lists options and examples; default: run)
{commands}

The same command again skips a finished run and resumes an interrupted one.
"""


def main() -> None:
    """Run the command line and exit: 0 done, 1 mistake or failure, 128 + N stopped by signal N."""
    prepare()
    stopping.install()
    try:
        os.environ.update(environment(os.environ) or {})
        os.environ["PATH"] = _absolute(os.environ.get("PATH", os.defpath))
        log_to_stderr()
        with stopping.heard():
            _dispatch(without_permission(without_local_rank(sys.argv[1:])))
        stopping.uninstall()
        sys.stdout.flush()
        leave(0)
    except BrokenPipeError:  # the reader of `ptrun ... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except stopping.Stopped as stopped:
        stopping.uninstall()
        print(stopped, file=sys.stderr)
        leave(128 + stopped.number)
        sys.exit(128 + stopped.number)
    except BaseException as error:
        if not isinstance(error, UserError | RunFailed | RankLost):
            if not (isinstance(error, Exception) or is_panic(error)):
                raise
            if (told := explained(error)) is None or os.environ.get(_TRACEBACK):
                raise
            error = told
        print_error(error)
        leave(1)
        sys.exit(1)


def _absolute(path: str) -> str:
    """Return a PATH without relative folders: no program is started from the current one."""
    return os.pathsep.join(filter(os.path.isabs, path.split(os.pathsep)))


def _dispatch(arguments: Sequence[str]) -> None:
    command = arguments[0] if arguments else ""
    if (module := load(command)) is not None:
        module.main(arguments[1:])
    elif command in ("-h", "--help", "help"):
        lines = [f"  {name:<12}{line}" for name, line in commands().items()]
        print(folded(_HELP.format(commands="\n".join(lines))), end="")
    elif command == "--version":
        print(f"ptrun {__version__}")
    elif command[:1].isalpha() and "=" not in command:
        raise UserError(_no_command(command))
    else:
        load("run").main(arguments)


def _no_command(word: str) -> str:
    """Return the message for a first word that is no command: an option, a table, or unknown."""
    for group in LISTED:
        if word in options(group):
            return f"ptrun {word}: expected KEY=VALUE; type ptrun {group}={word}"
    if word in (*LISTED, "seed"):
        return f"ptrun {word}: expected KEY=VALUE; type ptrun {word}=VALUE"
    if re.fullmatch(r"\w+/\w+", word):
        return f"ptrun {word}: expected KEY=VALUE; type ptrun experiment={word}"
    return unknown(f"ptrun {word}", word, commands())
