"""Compare methods on a blank infiller, in the pocket world: `python benchmarks/glm.py`.

P-tuning v2's Table 2 has GLM with a verbalizer and no head. This benchmark does the same on the
shipped `pocket_glm`: offline, honest protocol, three seeds, about ten minutes on one core. Chance
is 50 for sentiment, 7 for topics and 25 for options. Options have several tokens, and the text has
the wrong ones too. pocket_glm has not learned them, nor has pocket_t5 in one run of 150 steps.
Writes results/glm.{md,json}. Finished runs in --outputs are not repeated.
"""

import argparse
import json
from pathlib import Path

import learning
from claims import FACTS, Claim

NAMES = ("glm.json", "glm.md")
BACKBONE = ("backbone=pocket_glm",)
SHORT = ("train.max_steps=200", "train.batch_size=16", "train.eval_every=50")
LONGER = ("train.max_steps=100", "train.batch_size=8", "train.eval_every=100")
LABELS = "readout=verbalizer"
MANUAL = {"manual": ("method=manual_prompt",)}
ROWS = {
    "PT": ("method=prompt_tuning", LABELS),
    "P-tuning v2, hidden": ("method=ptuning_v2", LABELS, "method.prefix_kind=hidden"),
    "P-tuning v2, kv": ("method=ptuning_v2", LABELS, "method.prefix_kind=kv"),
    "FT": ("method=fine_tuning", LABELS),
}
TEXTS = MANUAL | {"FT": ROWS["FT"]}
OPTIONS = ("task=pocket_choice", "readout.pattern=texts")  # options of several tokens
TABLE, FIRST = "P-tuning v2 T2: PT < P-tuning v2, FT", "P-tuning T2: manual < P-tuning"


def of_labels(name: str) -> tuple[Claim, Claim]:
    """Return a claim about patterns, manual and learned, and one about prompts."""
    common = (f"task=pocket_{name}", *BACKBONE, *SHORT)
    pattern = MANUAL | {"P-tuning": ("method=ptuning",)}
    return Claim(f"{name}, pattern", FIRST, common, pattern), Claim(name, TABLE, common, ROWS)


CLAIMS = (
    *of_labels("sentiment"),
    *of_labels("topics"),
    Claim("options", "manual < FT", (*OPTIONS, *BACKBONE, *LONGER), TEXTS),
    Claim("facts", FIRST, ("task=pocket_facts", *BACKBONE), FACTS),
)


def main() -> None:
    """Run what is not finished and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", help="default: 1,2,3")
    parser.add_argument("--outputs", type=Path, default=Path("outputs/glm"))
    parser.add_argument("--results", type=Path, default=learning.RESULTS)
    given = parser.parse_args()
    given.data = given.models = None
    rows = [row for claim in CLAIMS for row in learning.results(claim, given)]
    figures, page = (given.results / name for name in NAMES)
    figures.write_text(json.dumps(rows, indent=1) + "\n")
    page.write_text(learning.table(rows))
    print(page.read_text())


if __name__ == "__main__":
    main()
