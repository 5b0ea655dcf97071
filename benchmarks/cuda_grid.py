"""Every method, family and read-out on a CUDA device that is not there; kernels for absent cards.

    make cuda-grid                       all parts, on two cores about an hour
    make cuda-grid ARGS="--only kernels"
    make cuda-grid ARGS="--only combinations --share 100 --out FOLDER"

Combinations train, stop, resume to their result and predict (tests/cuda). The attention kernels are
compiled for seven kinds of card. Writes results/cuda_grid.{json,md}.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from running import HERE, arguments, kept

from ptrun.backbone.dropout import RULE

sys.path.insert(0, str(HERE.parent))
PARTS = ("combinations", "kernels")


def missing(part: str) -> str | None:
    """Return why a part cannot be done here; None if it can."""
    from tests.cuda import device

    if part == "combinations":
        return device.missing()
    return None if find_spec("triton") else "needs triton"


def done(module: str, *arguments: str) -> list[dict]:
    """Return the JSON lines of a module of tests/cuda."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        line = [sys.executable, "-m", f"tests.cuda.{module}", *arguments, str(file)]
        subprocess.run(
            line, cwd=HERE.parent, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False
        )
        return [json.loads(row) for row in file.read_text(encoding="utf-8").splitlines()]


def combinations(share: int) -> dict:
    """Try all combinations, or one of `share` in cells.txt, half on each of two cores."""
    every = ["--all"] if share == 1 else []
    with ThreadPoolExecutor(2) as pool:
        parts = pool.map(
            lambda n: done("grid", *every, "--part", f"{n}/{2 * share}", "--json"), (1, 2)
        )
        return counted(row for part in parts for row in part)


def counted(rows: Iterable[dict]) -> dict:
    """Return the combinations that were tried, and the number of those refused by design."""
    every = list(rows)
    tried = [row for row in every if not row["outcome"].startswith("refused")]
    return {"tried": tried, "refused": len(every) - len(tried)}


def _combinations(found: dict) -> str:
    tried, refused = found["tried"], found["refused"]
    passed = [row for row in tried if row["outcome"] == "pass"]
    by_backbone = Counter(row["cell"].split(" | ")[1] for row in passed)
    all_of = Counter(row["cell"].split(" | ")[1] for row in tried)
    most = {key: max((row[key] for row in passed), default=0) for key in ("waits", "uploads")}
    lines = [
        f"{len(passed)} of {len(tried)} combinations of method, read-out, backbone and kind pass; "
        f"{refused} more are refused by design.",
        "",
        "A combination trains a step, is stopped, resumes to its result and predicts. It fails at "
        "an op that CUDA refuses. What was counted in a training step:",
        "",
        "| what | most |",
        "|---|---|",
        f"| waits of the host (one is needed, for the losses and norms) | {most['waits']:g} |",
        f"| copies from pageable memory | {most['uploads']:g} |",
        "| combinations with an op or kernel whose last bits CUDA leaves open "
        f"| {sum(bool(row['open']) for row in passed)} |",
        "",
        "| backbone | pass | tried |",
        "|---|---|---|",
        *(f"| {name} | {by_backbone[name]} | {count} |" for name, count in all_of.items()),
        "",
        *(f"- {row['cell']}: {row['error']}" for row in tried if row["outcome"] == "FAILED"),
    ]
    return "\n".join(lines)


def _kernels(rows: list[dict]) -> str:
    from tests.cuda.compiled import LIMITS

    every = [one for row in rows for one in row["kernels"]]
    bad = [one for one in every if "error" in one]
    lines = [
        f"{len(every) - len(bad)} of {len(every)} kernels in {len(rows)} cases compile.",
        "",
        "| sm | type | head | has | tiles | registers | spilled bytes | shared KiB | limit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        case, own = row["case"], [one for one in row["kernels"] if "error" not in one]
        if not own:
            continue
        shared, limit = max(one["shared"] for one in own) / 1024, LIMITS[case["sm"]]
        spilled = max(own, key=lambda one: one["spilled"])
        tiles = " ".join(dict.fromkeys(one["tiles"] for one in own if one["kernel"] != "deltas"))
        where = f" ({spilled['kernel']})" if spilled["spilled"] else ""
        lines.append(
            f"| {case['sm']} | {case['type']} | {case['head']} | {case['has']} | {tiles} "
            f"| {max(one['registers'] for one in own)} | {spilled['spilled']}{where} "
            f"| {shared:.0f}{' OVER' if shared > limit else ''} | {limit} |"
        )
    return "\n".join([*lines, *(f"- {one['kernel']}: {one['error']}" for one in bad)])


_PAGE = """\
# A CUDA device that is not there

{day}, masks {rule}, `make cuda-grid`. No GPU was used: tensors claim to be on one and hold real
numbers, and kernels are compiled for cards that are absent. What this cannot show: numerics of
CUDA, memory, NCCL, compiled functions.

## Combinations

{combinations}

## Kernels

{kernels}

`OVER`: the kernel needs more shared memory than the card has. Then the check at the start of a run
fails, and plain attention is used, with a warning.
"""


def main() -> None:
    """Do the parts, write the page; exit with 1 if a combination or a kernel fails."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--share", type=int, default=1, help="one of so many in cells.txt")
    given = parser.parse_args()
    file = given.out / "cuda_grid.json"
    rows = kept(file, {})
    for part in given.only:
        if reason := missing(part):
            print(f"{part}: skipped, {reason}")
            continue
        rows[part] = combinations(given.share) if part == "combinations" else done("compiled")
        file.write_text(json.dumps(rows) + "\n", encoding="utf-8")
    if set(rows) == set(PARTS):
        page = _PAGE.format(
            day=date.today().isoformat(),
            rule=RULE,
            combinations=_combinations(rows["combinations"]),
            kernels=_kernels(rows["kernels"]),
        )
        file.with_suffix(".md").write_text(page, encoding="utf-8")
    tried = rows.get("combinations", {}).get("tried", [])
    failed = [row for row in tried if row["outcome"] == "FAILED"]
    failed += [one for row in rows.get("kernels", []) for one in row["kernels"] if "error" in one]
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
