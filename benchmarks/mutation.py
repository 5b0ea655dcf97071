"""Change one operator, number or word of a module at a time, and see whether its tests notice.

    pip install mutmut
    python benchmarks/mutation.py [--sample 36] [--seed 1] [--modules NAME ...]

mutmut makes every mutant of a module. A sample of them is tried, each with the tests of `MODULES`
that call the changed function. A mutant that no test notices survives; the page lists survivors.

Writes results/mutation.md.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from running import HERE, arguments

MODULES = {
    "metrics": (
        "tests/metrics",
        "tests/fuzz/test_metrics.py",
        "tests/training/test_selection_bias.py",
    ),
    "training/member": ("tests/training/test_select.py", "tests/training/test_stopping.py"),
    "config/identity": ("tests/config/test_identity.py", "tests/fuzz/test_identity.py"),
    "folder/store": ("tests/runs/test_store.py",),
    "sweeps/scheduler": ("tests/sweeps/test_scheduler.py",),
}
"""The modules by name, and their tests: those of a second or two."""
_SURVIVED, _UNTESTED = 0, (5, 33)  # mutmut's codes; others mean killed, None not tried
_SETTINGS = """\
[mutmut]
source_paths=ptrun
only_mutate=
{files}
also_copy=
    conf
    docs
    benchmarks
pytest_add_cli_args=
    -x
    -n
    0
    -m
    not slow
pytest_add_cli_args_test_selection=
{tests}
"""


@dataclass(frozen=True)
class Module:
    """The mutants of a module by name, with the codes of those that were tried."""

    mutants: Mapping[str, int | None]

    @property
    def tried(self) -> list[str]:
        """The mutants that ran against a test."""
        return [name for name, code in self.mutants.items() if code is not None]

    @property
    def survivors(self) -> list[str]:
        """The mutants that passed all tests, or that no test calls."""
        return [name for name in self.tried if self.mutants[name] in (_SURVIVED, *_UNTESTED)]


def modules(folder: Path) -> dict[str, Module]:
    """Return what mutmut recorded in a folder."""
    found: dict[str, dict[str, int | None]] = {}
    made = folder / "mutants" / "ptrun"
    for file in sorted(made.rglob("*.meta")):
        place = file.relative_to(made).as_posix().removesuffix(".py.meta")
        own = next((name for name in MODULES if place.startswith(name)), None)
        if own:
            codes = json.loads(file.read_text())["exit_code_by_key"]
            found[own] = {**found.get(own, {}), **codes}
    return {name: Module(found[name]) for name in MODULES if name in found}


def mutmut(folder: Path, *arguments: str) -> str:
    """Call mutmut in a folder and return what it prints."""
    line = [str(Path(sys.executable).with_name("mutmut")), *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout


def prepared(folder: Path, names: Sequence[str]) -> None:
    """Copy the repository into a folder, and let mutmut make the mutants of modules."""
    archive = subprocess.run(
        ["git", "archive", "HEAD"], cwd=HERE.parent, capture_output=True, check=True
    )
    subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)
    files = [f"ptrun/{name}.py" for name in names]
    tests = [test for name in names for test in MODULES[name]]
    listed = {"files": files, "tests": tests}
    text = {key: "\n".join(f"    {one}" for one in own) for key, own in listed.items()}
    (folder / "setup.cfg").write_text(_SETTINGS.format(**text))
    mutmut(folder, "run", "none*")  # matches no mutant: makes them and measures the tests


def sampled(found: Mapping[str, Module], count: int, seed: int) -> list[str]:
    """Return the names of some mutants of each module."""
    draw = random.Random(seed)
    pools = (sorted(own.mutants) for _, own in sorted(found.items()))
    return [name for pool in pools for name in draw.sample(pool, min(count, len(pool)))]


def page(found: Mapping[str, Module], folder: Path, sample: int, seed: int) -> str:
    """Return the page of results."""
    lines = ["# Mutants", "", f"{sample} mutants of each module, drawn with seed {seed}.", ""]
    lines += ["| module | mutants | tried | killed | score |", "|---|---|---|---|---|"]
    for name, own in found.items():
        killed = len(own.tried) - len(own.survivors)
        score = f"{100 * killed / max(1, len(own.tried)):.0f} %"
        lines.append(f"| `{name}` | {len(own.mutants)} | {len(own.tried)} | {killed} | {score} |")
    lines += ["", "## Survivors", ""]
    for own in found.values():
        for name in own.survivors:
            lines += [f"`{name}`", "", "```diff", *changed(mutmut(folder, "show", name)), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def changed(shown: str) -> Sequence[str]:
    """Return the changed lines of a diff."""
    lines = (line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in _HEADS)
    return [line for line in lines if line[1:].strip()]


_HEADS = ("+++", "---")


def main() -> None:
    """Try a sample and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--sample", type=int, default=36)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modules", nargs="+", choices=MODULES, default=list(MODULES))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared(folder, given.modules)
        mutmut(folder, "run", *sampled(modules(folder), given.sample, given.seed))
        text = page(modules(folder), folder, given.sample, given.seed)
    (given.out / "mutation.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
