"""The page of results, from the figures in results/faults.json."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from benchmarks.drill.covered import COVERED
from benchmarks.drill.ends import ENDS, Ended
from benchmarks.drill.parts import PARTS

_HEAD = """\
# Faults

What becomes of commands that are killed, starved, or fed damaged files: `make drill`. Every case is
a process of its own on the pocket world. `same`: the fault changes nothing. `healed`: the same
command gives the answer of an undisturbed one. `refused`: one message names the path; once the
cause is gone, the same command gives that answer. `unclear`: refused without the path. The last
three must be 0: an exception reached the shell, a command did not end or cannot be finished, or
there is another answer.
"""
_LEFT_OUT = """\
Not damaged: files that only the user writes, as data, rows to predict, or an adapter of PEFT. A
change in them that is still valid is another input: data and weights are part of the id of a run.
"""


def counts(ended: Sequence[Ended]) -> dict[str, int]:
    """Return the figures of a row."""
    own = {"cases": len(ended), **{end: 0 for end in ENDS}}
    for one in ended:
        own[one.end] += 1
    faults, drafts = sum(one.faults for one in ended), sum(one.drafts for one in ended)
    return {**own, "faults": faults, "drafts": drafts}


def text(kept: Mapping[str, Any]) -> str:
    """Return the page."""
    parts = [_part(name, kept["parts"][name]) for name in PARTS if name in kept["parts"]]
    total = _table({name: _sum(own["rows"]) for name, own in kept["parts"].items()}, "part")
    return "\n".join([_HEAD, total, *parts, _LEFT_OUT, _times(kept.get("times")), _covered()])


def _part(name: str, own: Mapping[str, Any]) -> str:
    seconds = sum(row.get("seconds", 0) for row in own["rows"].values())
    made = f"{seconds:,} s in all."
    if name == "kills":
        total = _sum(own["rows"])
        made = f"{total['faults']} kills; {total['drafts']} drafts are left. {made}"
    how = fill(" ".join(own["how"].split()), 100)
    return f"## {PARTS[name].title}\n\n{how}\n{made}\n\n{_table(own['rows'], 'kind')}"


def _table(rows: Mapping[str, Mapping[str, int]], head: str) -> str:
    names = ("cases", *ENDS)
    lines = [f"| {head} | {' | '.join(names)} |", "|---" + "|---:" * len(names) + "|"]
    whole = {**rows, "**all**": _sum(rows)} if len(rows) > 1 else rows
    lines += [f"| {kind} | {' | '.join(str(r[n]) for n in names)} |" for kind, r in whole.items()]
    return "\n".join(lines) + "\n"


def _sum(rows: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    keys = ("cases", *ENDS, "faults", "drafts")
    return {key: sum(row[key] for row in rows.values()) for key in keys}


def _times(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    resumes = ", ".join(map(str, found["seconds_to_resume"]))
    return (
        "## Saves and resuming\n\n"
        f"A run saves at every evaluation, and after {found['save_seconds']:.0f} s without a save\n"
        "(`SAVE_SECONDS` in `ptrun/training/member.py`); `ptrun adapt` every `save_every=300` s.\n"
        f"Longest time without a save, of {found['saves_watched']} in a run without evaluations: "
        f"{found['longest_without_save']} s.\n"
        "From the start of a new process to its first new step, imports and all: "
        f"{resumes} s, at a load of {found['load']} on the machine.\n"
    )


def _covered() -> str:
    lines = ["## Faults that tests try", ""]
    for fault, names in COVERED.items():
        lines += [f"- {fault}:", *(f"  - `tests/{name}`" for name in names)]
    return "\n".join(lines) + "\n"
