"""Tiny random models of many types: what works in each.

    python benchmarks/model_types.py [--types NAME ...]      # about four minutes

A row for each type that has an entry in ptrun, each of tests/backbone/types.py, and the text of
models that also read images. Writes results/model_types.md.
"""

import itertools
import os
import tempfile
from pathlib import Path

from running import arguments


def main() -> None:
    """Write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--types", nargs="+", metavar="NAME", help="default: all")
    typed = parser.parse_args()
    from type_checks import CELLS, row, types

    from tests.conftest import write_data

    groups = types.ENTRIES, *types.GROUPS.values(), types.CLOSED, types.MULTIMODAL, types.REFUSED
    table = []
    for kind in typed.types or dict.fromkeys(itertools.chain(*groups)):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder  # no proof is remembered
            table.append(row(kind, Path(folder), write_data(Path(folder) / "data")))
        print(table[-1], flush=True)
    proven = [
        cells for cells in table if not cells[1].startswith("refused") and cells[1][-1] != "-"
    ]
    whole = sum("FAILS" not in "".join(cells) for cells in proven)
    notes: dict[str, int] = {}

    def short(cell: str) -> str:
        for mark, word in (("refused: ", "no"), ("FAILS: ", "FAILS")):
            if mark in cell:
                before, _, note = cell.partition(mark)
                return f"{before.strip() or word} ({notes.setdefault(note, len(notes) + 1)})"
        return cell

    lines = [__doc__.splitlines()[0], ""]  # type: ignore[union-attr]
    lines += [f"{whole} of {len(proven)} types pass the proof. Each column says:", ""]
    for column, check in CELLS.items():
        says = " ".join(getattr(check, "func", check).__doc__.split())  # type: ignore[union-attr]
        lines.append(f"- {column}: {says.removeprefix('Return ')}")
    lines += ["", "Numbers are shares of the largest number compared.", ""]
    lines += ["| type | " + " | ".join(CELLS) + " |", "|" + " --- |" * (len(CELLS) + 1)]
    lines += ["| " + " | ".join(map(short, cells)) + " |" for cells in table]
    lines += ["", *(f"{number}. {note}" for note, number in notes.items())]
    (typed.out / "model_types.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
