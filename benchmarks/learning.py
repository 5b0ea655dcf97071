"""Do the methods learn, and in the order the papers say? One table, several seeds, honest protocol.

    python benchmarks/learning.py [--data DIR --models DIR] [--seeds 1,2,3] [--only NAME ...]

Pocket rows run offline on the shipped backbones; rows on real data need DIR with the data sets and
DIR with `mini_bert`. Every row is an ordinary run; finished ones are kept in --outputs. Written to
results/learning.{md,json}; a claim that does not hold is written as such.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Claim:
    """What a paper says of some rows: each at least as good as the one before, in order."""

    name: str
    says: str
    common: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]
    needs: str = ""


def methods(prompt: str, deep: str) -> dict[str, tuple[str, ...]]:
    """Return prompt tuning, P-tuning v2 and fine-tuning, with what prompts need."""
    return {
        "PT": ("method=prompt_tuning", *prompt.split()),
        "P-tuning v2": ("method=ptuning_v2", *deep.split()),
        "FT": ("method=fine_tuning",),
    }


SHORT = ("train.max_steps=120", "train.batch_size=8", "train.eval_every=40")
LAYERS = ("method=ptuning_v2",)
FACTS = {
    "manual": ("method=manual_prompt",),
    "P-tuning": ("method=ptuning", "train.epochs=20", "train.batch_size=8"),
}
CLAIMS = (
    Claim("facts", "P-tuning T2: manual < P-tuning", ("task=pocket_facts",), FACTS),
    Claim(
        "facts, GPT-2",
        "P-tuning T2: manual < P-tuning",
        ("task=pocket_facts", "backbone=pocket_gpt2"),
        FACTS,
    ),
    Claim("NER", "P-tuning v2 T3: PT < P-tuning v2 <= FT", ("task=pocket_ner",), methods("", "")),
    Claim(
        "QA",
        "P-tuning v2 T3: PT < P-tuning v2 <= FT",
        ("task=pocket_qa", "train.epochs=6"),
        methods("", ""),
    ),
    Claim(
        "depth, NER",
        "P-tuning v2 F3: bottom <= top layers",
        ("task=pocket_ner",),
        {
            "layers 1-2": (*LAYERS, "method.layers=[1,2]"),
            "layers 3-4": (*LAYERS, "method.layers=[3,4]"),
        },
    ),
    Claim(
        "depth, sentiment",
        "P-tuning v2 F3: bottom <= top layers",
        ("task=pocket_sentiment",),
        {
            "layers 1-2": (*LAYERS, "method.layers=[1,2]"),
            "layers 3-4": (*LAYERS, "method.layers=[3,4]"),
        },
    ),
    Claim(
        "CoNLL03, mini_bert",
        "P-tuning v2 T3: PT < P-tuning v2 <= FT",
        ("task=conll03", "train.max_steps=400", "train.eval_every=400"),
        methods("train.lr=3e-2", "train.lr=3e-2"),
        "mini_bert",
    ),
    Claim(
        "LAMA, 5 relations, mini_bert",
        "P-tuning T2: manual < P-tuning",
        ("task=lama", "task.vocabulary=objects", "task.relations=[P17,P19,P27,P36,P103]"),
        {
            "manual": ("method=manual_prompt",),
            "LPAQA": ("method=manual_prompt", "method.pattern=lpaqa"),
            "P-tuning": ("method=ptuning", "train.lr=5e-3", *SHORT),
        },
        "mini_bert",
    ),
)


def scores(claim: Claim, row: str, given: argparse.Namespace) -> list[dict]:
    """Run one row with every seed; return its results."""
    place = [f"data_dir={given.data}", f"backbone.path={given.models}/{claim.needs}"]
    slug = f"{claim.name}-{row}".replace(" ", "_").replace(",", "")
    line = [*claim.common, *claim.rows[row], *(place if claim.needs else [])]
    line += [f"outputs={given.outputs}", f"name={slug}", f"seed={given.seeds}"]
    ptrun = Path(sys.executable).parent / "ptrun"
    subprocess.run([ptrun, "-m", *line], check=True, stdout=subprocess.DEVNULL)
    files = sorted((given.outputs / slug).rglob("result.json"))
    return [json.loads(file.read_text()) for file in files]


def told(claim: Claim, given: argparse.Namespace) -> list[dict]:
    """Return the rows of a claim, the last with its verdict."""
    found = []
    for row in claim.rows:
        runs = scores(claim, row, given)
        tests = [run["metrics"]["test"][run["metric"]] for run in runs]
        found.append(
            {
                "claim": claim.name,
                "says": claim.says,
                "row": row,
                "metric": runs[0]["metric"],
                "test": [round(score, 2) for score in tests],
                "mean": round(fmean(tests), 2),
                "std": round(stdev(tests), 2) if len(tests) > 1 else None,
                "learned": runs[0]["learned_parameters"]["total"],
                "seconds": round(fmean(run["manifest"]["seconds"] for run in runs), 1),
            }
        )
    means = [row["mean"] for row in found]
    found[-1]["holds"] = means == sorted(means)
    return found


def table(rows: list[dict]) -> str:
    """Return the rows as Markdown."""
    lines = ["| task | row | test | learned | s/run | the paper says | here |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        spread = f"{row['mean']:.2f}" + (f" ± {row['std']:.2f}" if row["std"] is not None else "")
        says = " | "
        if "holds" in row:
            says = f"{row['says']} | {'holds' if row['holds'] else 'DOES NOT HOLD'}"
        lines.append(
            f"| {row['claim']} | {row['row']} | {row['metric']} {spread} | {row['learned']:,} | "
            f"{row['seconds']:.0f} | {says} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--outputs", type=Path, default=Path("outputs/learning"))
    parser.add_argument("--only", nargs="*", help="names of claims; default: all")
    given = parser.parse_args()
    rows: list[dict] = []
    for claim in CLAIMS:
        if (given.only and claim.name not in given.only) or (claim.needs and not given.models):
            continue
        rows += told(claim, given)
        (RESULTS / "learning.json").write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "learning.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
