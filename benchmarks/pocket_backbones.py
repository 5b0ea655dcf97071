"""Collect the figures of the shipped pocket backbones: `python benchmarks/pocket_backbones.py`.

Each model has its size, held-out scores beside the best constant prediction, seconds and training
curve. Writes results/pocket_backbones.json and prints the table without the curves.
"""

import csv
import json
from pathlib import Path

from running import arguments

import ptrun.pocket

MODELS = Path(ptrun.pocket.__file__).parent / "models"


def figures(folder: Path) -> dict:
    """Return one model's figures and its training curve."""
    result = json.loads((folder / "result.json").read_text())
    with (folder / "train_log.csv").open() as file:
        log = list(csv.DictReader(file))
    return {
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "parameters": result["parameters"],
        "steps": result["plan"]["steps"],
        "seconds": result["seconds"],
        "held_out": result["validation"],
        "curve": {key: [float(line[key]) for line in log] for key in log[0]},
    }


def main() -> None:
    """Save and print the figures."""
    given = arguments(__doc__).parse_args()
    found = {folder.name: figures(folder) for folder in sorted(MODELS.iterdir())}
    total = round(sum(model["seconds"] for model in found.values()), 1)
    (given.out / "pocket_backbones.json").write_text(
        json.dumps({"models": found, "seconds": total}) + "\n"
    )
    for name, model in found.items():
        print(name, {k: v for k, v in model.items() if k != "curve"})
    print(f"all together: {total / 60:.1f} min")


if __name__ == "__main__":
    main()
