"""The command line: `ptrun [overrides]`, `ptrun -m …`, and the commands beside a run.

Nothing heavy is imported before a run starts; every mistake ends in a few plain lines.
"""

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ptrun import __version__
from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.hardware.launcher import environment, without_local_rank
from ptrun.hardware.messages import is_main_rank, log_to_stderr

if TYPE_CHECKING:
    from ptrun.config.compose import Composed

_TOLD = (UserError, RunFailed, RankLost)

_HELP = """\
ptrun: config-driven experiments in prompt tuning

  ptrun [KEY=VALUE ...]       one run; bare `ptrun` trains offline in seconds
  ptrun -m KEY=A,B ...        a sweep over comma-separated values
  ptrun experiment=dpt/table1 all runs of a paper's table: check=true, +scale=pocket, cell=NAME
  ptrun list [GROUP]          the options of a group, or of all
  ptrun report DIR [over=KEY] mean, std and n for each method and task below DIR; over the
                              values of a key: over=method.pattern, with the best on dev;
                              best=3 adds DPT's mean of the best 3 seeds, and all of them
                              vote=true: the score of the seeds' majority too
  ptrun report paper=NAME     every number that a paper prints (or all papers) beside ours;
                              table=table1, outputs=DIR, to=FOLDER: a page, CSV, LaTeX, figures
  ptrun diff A B              what differs between two runs (folders or ids), and whether it may
  ptrun rerun RUN             the same run once more, in a folder of its own, and the difference
  ptrun predict RUN --input FILE    a finished run's answers to the rows of a file, as JSON lines
  ptrun check [KEY=VALUE ...] what a run would read: counts, lengths, examples; runs nothing
  ptrun plan [KEY=A,B ...]    jobs and their state, parameters, memory on each engine, what fits;
                              needs no weights; length=N tokens, device_gib=80, probe=20 steps
  ptrun --cfg job ...         show the composed configuration, run nothing
  ptrun grid                  what can be combined; steps=2 tries every combination
  ptrun pretrain backbone=B   make a pocket backbone anew, or a larger one: corpus=DIR
  ptrun pretrain --random backbone=B out=DIR    a model of that full shape, random weights
  ptrun adapt backbone=B      train an encoder-decoder on as a language model: corpus=DIR
  ptrun import cpm2|glm|megatron SOURCE --out DIR    a model folder from their own files

Groups, as in `ptrun method=ptuning_v2 task=conll03`:
{groups}

Often set: seed, data_dir, backbone.path, train.lr, train.epochs, train.max_steps,
train.batch_size, method.length, start, hardware.precision, rerun=true, name.
The same command again skips a finished run and resumes an interrupted one.
Own options: ./ptrun_conf/<group>/<option>.yaml, or below $PTRUN_CONFIG_DIR.
"""


def main() -> None:
    """Do what the command line says and exit: 0 done, 1 a mistake or failure, 130 interrupted."""
    # Threads that spin while they wait make a step 100 times slower as soon as another process
    # wants a core; OpenMP reads this when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        os.environ.update(environment(os.environ) or {})
        log_to_stderr()
        _dispatch(without_local_rank(sys.argv[1:]))
    except _TOLD as error:
        _tell(error)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last save", file=sys.stderr)
        sys.exit(130)


def _dispatch(arguments: Sequence[str]) -> None:
    commands: dict[str, Callable[[Sequence[str]], None]] = {
        "list": _list,
        "report": _report,
        "check": _check,
        "grid": _grid,
        "plan": _plan,
        "diff": _main_of("ptrun.difference.report"),
        "rerun": _main_of("ptrun.command.rerun"),
    }
    helpful = {  # each has its own help
        "import": _main_of("ptrun.command.import"),
        "predict": _main_of("ptrun.command.predict"),
        "pretrain": _main_of("ptrun.command.pretrain"),
        "adapt": _main_of("ptrun.command.adapt"),
    }
    if arguments and arguments[0] in helpful:
        helpful[arguments[0]](arguments[1:])
    elif any(argument in ("-h", "--help") for argument in arguments):
        _help()
    elif "--version" in arguments:
        print(f"ptrun {__version__}")
    elif any(argument.startswith("experiment=") for argument in arguments):
        _main_of("ptrun.ledger.running")(arguments)
    elif arguments and arguments[0] in commands:
        commands[arguments[0]](arguments[1:])
    elif arguments and arguments[0][:1].isalpha() and "=" not in arguments[0]:
        from ptrun.config.suggest import unknown

        raise UserError(unknown(f"ptrun {arguments[0]}", arguments[0], {*commands, *helpful}))
    elif any(argument.startswith("-") for argument in arguments):
        _hydra(arguments)
    else:
        _one(arguments)


def _help() -> None:
    from ptrun.config.paths import options
    from ptrun.config.schema import GROUPS

    lines = [_listed(group, options(group)) for group in GROUPS]
    print(_HELP.format(groups="\n".join(lines)), end="")


def _listed(group: str, names: Iterable[str]) -> str:
    """Return a group and its options, in as many lines as they need."""
    return textwrap.fill(
        ", ".join(names),
        width=96,
        initial_indent=f"  {group:<10}",
        subsequent_indent=" " * 12,
        break_on_hyphens=False,
    )


def _list(arguments: Sequence[str]) -> None:
    """Print the options of one group or all, a line each."""
    from ptrun.config.paths import describe, options
    from ptrun.config.schema import GROUPS
    from ptrun.config.suggest import unknown

    wanted = list(arguments) or list(GROUPS)
    for group in wanted:
        if group not in GROUPS:
            raise UserError(unknown(f"list {group}", group, GROUPS))
    for group in wanted:
        for option, file in options(group).items():
            print(f"{f'{group}={option}':<34}{describe(file)}")


def _report(arguments: Sequence[str]) -> None:
    """Print the table of a folder of results, or the ledger of a paper."""
    from rich.console import Console

    if any(argument.startswith("paper=") for argument in arguments):
        from ptrun.ledger.paper import report
    else:
        from ptrun.ledger.report import report

    Console(width=None if sys.stdout.isatty() else 200).print(report(arguments))


def _check(arguments: Sequence[str]) -> None:
    """Show what a run would read."""
    from rich.console import Console

    from ptrun.command.check import check
    from ptrun.config.explain import composed

    shown = check(composed(arguments))
    Console(width=None if sys.stdout.isatty() else 160).print(shown)


def _plan(arguments: Sequence[str]) -> None:
    """Show jobs and what they need."""
    import gc

    gc.disable()  # all that is imported stays; to look through it again and again takes a second
    try:
        from rich.console import Console

        from ptrun.command.plan import shown

        found = shown(arguments)
    finally:
        gc.enable()
    Console(width=None if sys.stdout.isatty() else 160).print(found)


def _grid(arguments: Sequence[str]) -> None:
    """Show which method answers which kind of task on which backbone."""
    from rich.console import Console

    from ptrun.command.grid import shown

    given = arguments[0].removeprefix("steps=") if arguments else "0"
    if len(arguments) > 1 or not given.isdigit():
        raise UserError("grid takes steps=N or nothing: ptrun grid steps=2")
    Console(width=None if sys.stdout.isatty() else 200).print(shown(int(given)))


def _main_of(module: str) -> Callable[[Sequence[str]], None]:
    """Return what a module's `main` does, imported when it is called; its own help if it has it."""

    def main(arguments: Sequence[str]) -> None:
        found = import_module(module)
        if hasattr(found, "usage") and any(argument in ("-h", "--help") for argument in arguments):
            print(found.usage())
        else:
            found.main(arguments)

    return main


def _one(overrides: Sequence[str]) -> None:
    """Do one run."""
    from ptrun.config.explain import composed

    _do(composed(overrides))


def _do(composed: "Composed") -> None:
    """Do a run, and print what it ends with; of several ranks the first prints."""
    from ptrun.run.launch import launch
    from ptrun.run.summary import summary

    done = launch(composed)
    if is_main_rank():
        print(summary(done, composed.config))


def _hydra(arguments: Sequence[str]) -> None:
    """Let Hydra do what is its own: sweeps, launchers, `--cfg`, `--info`, completion."""
    import hydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.errors import HydraException
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from ptrun.config.compose import loosen, resolve
    from ptrun.config.explain import explain
    from ptrun.config.paths import conf_dir

    shown: set[int] = set()

    def job(config: DictConfig) -> None:
        choices = OmegaConf.to_container(HydraConfig.get().runtime.choices)
        assert isinstance(choices, dict)
        try:
            _do(resolve(config, {str(key): value for key, value in choices.items()}))
        except _TOLD as error:  # told now; the sweep goes on with the next job
            _tell(error)
            shown.add(id(error))
            raise

    sys.argv = [sys.argv[0], *map(loosen, arguments)]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # hand us the exception instead of printing it
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="run")(job)()
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, arguments) from error
    except _TOLD as error:
        if id(error) not in shown:
            raise
        sys.exit(1)


def _tell(error: Exception) -> None:
    who = "" if is_main_rank() else f"rank {os.environ['RANK']}: "
    print(f"ptrun: {who}{error}", file=sys.stderr)
