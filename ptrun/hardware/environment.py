"""This process: its rank, its messages, and its settings of the CPU."""

import atexit
import ctypes
import gc
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence

from ptrun.errors import UserError, folded, readable

# The rank of this process, from the environment of torchrun, deepspeed or Slurm's srun.

_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_STEP = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID")
_NO_STEP = 2**32 - 16  # higher ids belong to batch scripts and shells
_FIRST_PORT, _PORTS = 10_000, 20_000  # below the ephemeral ports of the system
_LOCAL_RANK = re.compile(r"--local[-_]rank=\d+")


def environment(env: Mapping[str, str]) -> dict[str, str] | None:
    """Return RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.

    None means that no launcher started this process.
    """
    if "RANK" in env and "WORLD_SIZE" in env:
        if missing := [key for key in _NEEDED if key not in env]:
            raise UserError(
                f"RANK={env['RANK']} and WORLD_SIZE={env['WORLD_SIZE']} are set, but not "
                f"{', '.join(missing)}; start with torchrun, deepspeed or srun, or unset RANK."
            )
        return {key: env[key] for key in _NEEDED}
    # srun started several tasks, rather than a batch script or a shell
    if any(not env.get(key, "").isdigit() for key in _STEP) or "SLURM_PTY_PORT" in env:
        return None
    tasks = int(env.get("SLURM_STEP_NUM_TASKS") or env["SLURM_NTASKS"])
    if int(env["SLURM_STEP_ID"]) >= _NO_STEP or tasks <= 1:
        return None
    # a port that is the same for all ranks of a step, and rarely that of another step
    job = int(env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or 0)
    port = _FIRST_PORT + (64 * job + int(env["SLURM_STEP_ID"])) % _PORTS
    return {
        "RANK": env["SLURM_PROCID"],
        "WORLD_SIZE": str(tasks),
        "LOCAL_RANK": env["SLURM_LOCALID"],
        "MASTER_ADDR": env.get("MASTER_ADDR") or _master(env),
        "MASTER_PORT": env.get("MASTER_PORT") or str(port),
    }


def without_local_rank(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without --local_rank, which the deepspeed launcher adds."""
    return [a for a in arguments if not _LOCAL_RANK.fullmatch(a)]


def _master(env: Mapping[str, str]) -> str:
    """Return the address of rank 0: the first node of the step.

    Slurm's short form is `gpu[07-09,12],cpu1`, whose first is gpu07, and `2(x3),1` for the tasks
    of the nodes. The node where srun was typed is the last resort: it may be a login node.
    """
    tasks = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    if tasks.isdigit():  # of one node
        return "127.0.0.1"
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    host = re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else "")
    address = host or env.get("SLURM_LAUNCH_NODE_IPADDR")
    if not address:
        raise UserError("SLURM_JOB_NODELIST names no node; set MASTER_ADDR to the first node.")
    return address


# Logging: which messages a process prints, and which rank prints them.


def is_main_rank() -> bool:
    """Return whether this is the only process of a run, or the first of its ranks."""
    return "WORLD_SIZE" not in os.environ or os.environ.get("RANK", "0") == "0"


def log_to_stderr() -> None:
    """Print log messages to standard error. Standard output is for results alone."""
    logger = logging.getLogger("ptrun")
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if is_main_rank() else logging.WARNING)
    logger.propagate = False
    # it warns of a kernel that it looks for on the hub
    logging.getLogger("bitsandbytes.backends").setLevel(logging.ERROR)
    # DeepSpeed 0.19 prints this on standard output when a library looks for it.
    logging.getLogger("DeepSpeed").addFilter(
        lambda record: "Setting accelerator to CPU" not in record.getMessage()
    )


def print_error(error: Exception) -> None:
    """Print the message of an error, and which rank it is from if there are several."""
    rank = "" if is_main_rank() else f"rank {os.environ['RANK']}: "
    print(folded(f"ptrun: {rank}{readable(str(error))}", sys.stderr), file=sys.stderr)


class _Visible(logging.Formatter):
    """Writes control characters out: a text of a file could move the cursor or hide a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message of a record."""
        return folded(readable(super().format(record)), sys.stderr)


# Settings of a process that make a step on the CPU faster; they change no number.
#
# Measured on two cores, P-tuning v2, 32 sentences of SST-2 a batch, tokens a second. Spin counts 0,
# 1000 and 10,000, MiniLM: 1,070, 2,150 and 2,110 alone; 1,320, 1,130 and 500 beside a second run.
# Kept memory, BERT-base with prompt tuning: 210 before, 246 with it.
#
# oneDNN, which computes bf16, keeps a kernel for each shape of a product, and torch a description.
# Packed batches have many shapes, and what is kept lies between the tensors of a step, so memory is
# used in pieces. 400 passes through MiniLM's linear maps, 200 to 1,200 rows, in bf16: memory grows
# by 520 MiB with 128 kernels and 1,024 descriptions, by 80 with 32 of each, in the same time.

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
_MAX_MMAP_THRESHOLD = 32 * 2**20
_KEPT_SHAPES = 32  # the libraries' own limits are 1024


def prepare() -> None:
    """Set how threads wait and how memory is kept. Call it before torch is imported.

    Idle threads spin for some microseconds and then sleep. Without spinning, small models wait for
    sleeping threads half of the time. With much spinning, a step takes ten times as long as soon
    as another process wants a core.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(_KEPT_SHAPES))
    os.environ.setdefault("LRU_CACHE_CAPACITY", str(_KEPT_SHAPES))  # torch's of descriptions
    # freed memory is kept for the next step: the kernel clears each page that is requested anew
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc alone has it
        mallopt(_MMAP_THRESHOLD, _MAX_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def open_streams() -> None:
    """Open closed standard streams on the null device. Call it before a file is opened.

    A supervisor may start a process without them. The next file that is opened would take their
    place, and what a library prints would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(null, True)  # to ranks and workers
            setattr(sys, name, os.fdopen(null, "w" if number else "r", closefd=False))


_importing = False
_code: int | None = None  # of the process, once its work is done


def importing() -> None:
    """Collect no garbage until `imported`. Call it first in a process that is ptrun's alone.

    The imports of torch and transformers make a million objects and no garbage; looking through
    them takes a fifth of their time. After `done`, the process ends without freeing them one by
    one, which takes as long.
    """
    global _importing
    _importing = True
    gc.disable()
    atexit.register(_end)  # the first to be registered is the last to be called


def imported() -> None:
    """Collect garbage from here on, without looking through what is there.

    It does nothing unless `importing` was called. Call it before a process trains or waits.
    """
    global _importing
    if _importing:
        _importing = False
        gc.freeze()
        gc.enable()


def done(code: int = 0) -> None:
    """Note that the process has done its work: it ends with an exit code and without cleanup."""
    global _code
    _code = code


def _end() -> None:
    if _code is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_code)
    gc.unfreeze()  # some libraries report what is left at the end as leaks


def cores() -> int:
    """Return the cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
