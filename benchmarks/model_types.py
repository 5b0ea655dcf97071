"""Tiny random models of many types: which checks each passes, and what reading by probe costs.

    python benchmarks/model_types.py [--types NAME ...] [--pairs 10]      # about a minute

A row for each type of tests/backbone/types.py: the checks of its proof, packed against padded rows,
int8 and PEFT. A Llama read by probe is timed against the named family. Writes
results/model_types.md.
"""

import os
import tempfile
from pathlib import Path

from running import arguments

COLUMNS = (
    "type", "bare", "joint pass", "perturbation", "gradient", "packed = padded", "int8",
    "PEFT: prompt", "PEFT: prefix", "PEFT: LoRA",
)  # fmt: skip


def main() -> None:
    """Write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--types", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--pairs", type=int, default=10, help="of times, named and by probe")
    given = parser.parse_args()
    from type_checks import PretrainedBackbone, llama, row, said, types

    from tests.conftest import write_data

    kinds = given.types or [kind for group in types.GROUPS.values() for kind in group]
    lines = [__doc__.splitlines()[0], "", llama(given.pairs), ""]  # type: ignore[union-attr]
    print(lines[2], flush=True)
    found = []
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            os.environ["XDG_CACHE_HOME"] = folder  # no proof is remembered
            data = write_data(place / "data")
            own = said(lambda k=kind, d=data, p=place: "|".join(row(k, d, p)))  # type: ignore[misc]
        found.append(own.split("|") if not own.startswith("refused") else [kind, own])
        print(found[-1], flush=True)
    whole = sum(len(own) == len(COLUMNS) and "FAILS" not in own for own in found)
    notes: dict[str, int] = {}

    def short(cell: str) -> str:
        return f"no ({notes.setdefault(cell, len(notes) + 1)})" if len(cell) > 20 else cell

    lines += [f"{whole} of {len(kinds)} types pass the proof.", ""]
    lines += ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(map(short, own)) + " |" for own in found]
    lines += ["", *(f"{number}. {cell}" for cell, number in notes.items()), ""]
    lines += ["Refused by name:", ""]
    for kind in types.REFUSED:
        node = types.config_of(kind).to_dict()
        said_of = said(lambda n=node, k=kind: str(PretrainedBackbone(name=k, hub="a/b", config=n)))  # type: ignore[misc]
        lines.append(f"- {kind}: {said_of}")
    (given.out / "model_types.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
