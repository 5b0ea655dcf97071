"""Which rank of a run this process is, as torchrun, deepspeed or Slurm's srun say it."""

import re
from collections.abc import Mapping, Sequence

from ptrun.errors import UserError

_TOLD = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_STEP = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID")
_NO_STEP = 2**32 - 16  # ids from here on are a batch script's or a shell's
_FIRST_PORT, _PORTS = 10_000, 20_000  # below those that a system hands out itself
_LOCAL_RANK = re.compile(r"--local[-_]rank=\d+")


def environment(env: Mapping[str, str]) -> dict[str, str] | None:
    """Return RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and LOCAL_WORLD_SIZE if known.

    None says that no launcher started this process: it is a user's own.

    Raises:
        UserError: a launcher left out something that ranks need to find each other.
    """
    if "RANK" in env and "WORLD_SIZE" in env:
        return _told(env)
    return _of_step(env) if _is_step(env) else None


def without_local_rank(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without the one that the deepspeed launcher adds."""
    return [a for a in arguments if not _LOCAL_RANK.fullmatch(a)]


def _told(env: Mapping[str, str]) -> dict[str, str]:
    if missing := [key for key in _TOLD if key not in env]:
        raise UserError(
            f"RANK={env['RANK']} and WORLD_SIZE={env['WORLD_SIZE']} are set, but not "
            f"{', '.join(missing)}; start with torchrun, deepspeed or srun, or unset RANK."
        )
    local = env.get("LOCAL_WORLD_SIZE") or env.get("LOCAL_SIZE")  # the second is deepspeed's
    told = {key: env[key] for key in _TOLD}
    return {**told, "LOCAL_WORLD_SIZE": local} if local else told


def _is_step(env: Mapping[str, str]) -> bool:
    """Return whether srun started several of this, not a batch script or a shell for a user."""
    if any(not env.get(key, "").isdigit() for key in _STEP) or "SLURM_PTY_PORT" in env:
        return False
    return int(env["SLURM_STEP_ID"]) < _NO_STEP and _tasks(env) > 1


def _of_step(env: Mapping[str, str]) -> dict[str, str]:
    local = _on_this_node(env)
    return {
        "RANK": env["SLURM_PROCID"],
        "WORLD_SIZE": str(_tasks(env)),
        "LOCAL_RANK": env["SLURM_LOCALID"],
        "MASTER_ADDR": env.get("MASTER_ADDR") or _master(env, alone=local == _tasks(env)),
        "MASTER_PORT": env.get("MASTER_PORT") or str(_port(env)),
        **({"LOCAL_WORLD_SIZE": str(local)} if local else {}),
    }


def _tasks(env: Mapping[str, str]) -> int:
    return int(env.get("SLURM_STEP_NUM_TASKS") or env["SLURM_NTASKS"])


def _on_this_node(env: Mapping[str, str]) -> int | None:
    """Return how many tasks run here, from a list by node: `2(x3),1` is 2, 2, 2, 1."""
    told = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    counts: list[int] = []
    for tasks, _, nodes in re.findall(r"(\d+)(\(x(\d+)\))?", told):
        counts += [int(tasks)] * int(nodes or 1)
    node = int(env.get("SLURM_NODEID", "0"))
    return counts[node] if node < len(counts) else None


def _master(env: Mapping[str, str], *, alone: bool) -> str:
    """Return where rank 0 is: the first node of the step.

    The node that srun was typed on comes last: it may be one that only takes commands.
    """
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
    found = "127.0.0.1" if alone else _first_host(nodes) or env.get("SLURM_LAUNCH_NODE_IPADDR")
    if not found:
        raise UserError("srun names no nodes (SLURM_JOB_NODELIST); set MASTER_ADDR to the first.")
    return found


def _first_host(nodes: str) -> str:
    """Return the first host of Slurm's short form: `gpu[07-09,12],cpu1` begins with gpu07."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", nodes)
    return re.sub(r"\[([^\],-]+)[^\]]*\]", r"\1", first[0] if first else "")


def _port(env: Mapping[str, str]) -> int:
    """Return a port that all ranks of a step agree on, and no other step is likely to have."""
    job = int(env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID") or 0)
    return _FIRST_PORT + (64 * job + int(env["SLURM_STEP_ID"])) % _PORTS
