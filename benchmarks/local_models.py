"""Train prompts with a head on every model of a folder: SST-2 with 2,000 training examples.

    python benchmarks/local_models.py --models DIR --data DIR [--seeds 1,2,3]

Each model is a `backbone.path=`. The methods are `prompt_tuning` and `ptuning_v2` (20 vectors). Dev
selects and test is scored once. Writes results/local_models.json.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "local_models.json"
METHODS = ("prompt_tuning", "ptuning_v2")
TRAIN = 2000


def subset(data: Path, into: Path) -> float:
    """Write the task with 2,000 training rows; return the test accuracy of the majority class."""
    folder = into / "sst2"
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        with gzip.open(data / "sst2" / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
            lines = file.readlines()
        if split == "train":
            lines = random.Random(0).sample(lines, TRAIN)
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    labels = Counter(json.loads(line)["label"] for line in lines)
    return 100 * max(labels.values()) / labels.total()


def sweep(model: Path, data: Path, outputs: Path, options: list[str]) -> None:
    """Train both methods with all seeds on one model."""
    command = [Path(sys.executable).parent / "ptrun", "-m", f"method={','.join(METHODS)}"]
    command += ["task=sst2", f"data_dir={data}", f"backbone.path={model}", f"outputs={outputs}"]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


def rows(outputs: Path) -> list[dict]:
    """Return one row for each run."""
    found = []
    for file in sorted(outputs.rglob("result.json")):
        done = json.loads(file.read_text())
        found.append(
            {
                "backbone": done["names"]["backbone"],
                "method": done["names"]["method"],
                "seed": done["seed"],
                "dev": round(done["metrics"]["dev"]["accuracy"], 2),
                "test": round(done["metrics"]["test"]["accuracy"], 2),
                "learned": done["learned_parameters"]["total"],
                "lr": done["config"]["train"]["lr"],
                "seconds": round(done["manifest"]["seconds"], 1),
            }
        )
    return found


def main() -> None:
    """Run all models and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--only", nargs="*", help="names of models; default: all")
    parser.add_argument("options", nargs="*", help="overrides, as in train.lr=1e-2")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, outputs = Path(folder) / "data", Path(folder) / "outputs"
        majority = subset(given.data, data)
        for model in sorted(file.parent for file in given.models.glob("*/config.json")):
            if not given.only or model.name in given.only:
                sweep(model, data, outputs, [f"seed={given.seeds}", *given.options])
        result = {"train": TRAIN, "majority": round(majority, 2), "runs": rows(outputs)}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(RESULT.read_text())


if __name__ == "__main__":
    main()
