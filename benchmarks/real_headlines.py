"""What the papers say about pairs of rows of `real_rows.py`."""

from dataclasses import dataclass

from headlines import Headline
from real_rows import (
    ANSWERS,
    CONTEXT,
    FACTS,
    LARGER,
    LONGER,
    MASKED_FACTS,
    NAMES,
    ROWS,
    SUMS,
    TREC_12,
    TREC_ROW,
)

# paper, what it says about each task, first row, second row, kind of claim
SAID = (
    ("P-tuning v2, Tables 2 and 3", "above prompt tuning", "PT", "P-tuning v2", "above"),
    ("P-tuning v2, Tables 2 and 3", "close to fine-tuning", "FT", "P-tuning v2", "close"),
    ("IDPG, Table 1", "M-IDPG above prompt tuning", "PT", "M-IDPG", "above"),
    ("IDPG, Table 1", "M-IDPG above P-tuning v2", "P-tuning v2", "M-IDPG", "above"),
    ("IDPG, Table 1", "M-IDPG close to fine-tuning", "FT", "M-IDPG", "close"),
    ("IDPG, Table 1", "M-IDPG above S-IDPG", "S-IDPG", "M-IDPG", "above"),
    ("IDPG, Table 1", "M-IDPG close to Compacter", "Compacter", "M-IDPG", "close"),
    ("DPT, Table 1", "above fine-tuning", "FT", "DPT", "above"),
    ("DPT, Table 3", "1 - sigma above sigma", "DPT(sigma)", "DPT", "above"),
    ("P-tuning, Table 5", "P-tuning above manual prompts", "manual", "P-tuning", "above"),
    ("P-tuning, Table 5", "P-tuning above fine-tuning", "FT", "P-tuning", "above"),
    ("PPT, Table 4", "hybrid PPT above PT", "PT", "hybrid PPT", "above"),
    ("PPT, Table 4", "hybrid PPT above hybrid PT", "hybrid PT", "hybrid PPT", "above"),
    ("PPT, Table 4", "hybrid PPT varies less than hybrid PT", "hybrid PT", "hybrid PPT", "steady"),
)
EMPTY = (("SmolLM2, RTE, 32 shots", "close"),)  # fine-tuning is at chance there
DEPTH, LENGTH = f"{NAMES}, depth", f"{NAMES}, length"
DEPTH_12, LENGTH_12 = f"{TREC_12}, depth", f"{TREC_12}, length"
FIGURE, FACT = "P-tuning v2, Figure 3", "P-tuning, Table 2"
LORA = "LoRA, Hu et al. 2021"
MANUAL = {
    "manual": "manual prompts",
    "LPAQA": "searched prompts, LPAQA",
    "AutoPrompt": "searched prompts, AutoPrompt",
}
OWN = (
    *(
        Headline(SAID[1][0], f"{task}, 2,000 steps: {SAID[1][1]}", task, "FT", LONGER, "close")
        for task in (NAMES, TREC_ROW)
    ),
    Headline(FIGURE, "NER: top layers above bottom", DEPTH, "layers 1-2", "layers 5-6"),
    Headline(FIGURE, "NER: 20 vectors above 1", LENGTH, "length 1", "length 20"),
    *(
        Headline(FIGURE, f"{TREC_12}: top layers above {layers}", DEPTH_12, layers, "layers 9-12")
        for layers in ("layers 1-4", "layers 5-8")
    ),
    Headline(FIGURE, f"{TREC_12}: 20 vectors above 1", LENGTH_12, "length 1", "length 20"),
    *(
        Headline(FACT, f"{facts}: above {prompts}", facts, name, "P-tuning")
        for facts in (FACTS, MASKED_FACTS)
        for name, prompts in MANUAL.items()
    ),
    *(
        Headline(LORA, f"{task}: {says}", task, first, "LoRA", kind)
        for task in (SUMS, ANSWERS)
        for says, first, kind in (
            ("LoRA close to fine-tuning", "FT", "close"),
            ("LoRA above deep prompts", "P-tuning v2", "above"),
        )
    ),
    *(
        Headline(
            "Cartridges, Eyuboglu et al. 2025", f"{CONTEXT}: {says}", CONTEXT, first, "cartridge"
        )
        for says, first in (
            ("a cartridge above a document cut to its length", "document cut to 64"),
            ("a cartridge above LoRA of equal bytes", "LoRA"),
            ("first tokens above a random start", "random start"),
        )
    ),
)


def found() -> tuple[Headline, ...]:
    """Return the claims about each task that has both rows; `OWN` has those about facts."""
    names = {(row.claim, row.row) for row in ROWS}
    tasks = dict.fromkeys(row.claim for row in ROWS if row.claim not in (FACTS, MASKED_FACTS))
    return tuple(
        Headline(paper, f"{task}: {says}", task, first, second, kind)
        for paper, says, first, second, kind in SAID
        for task in tasks
        if {(task, first), (task, second)} <= names and (task, kind) not in EMPTY
    )


HEADLINES = (*found(), *OWN)


def is_earlier(headline: Headline) -> bool:
    """Return whether a claim is one of the 74 that were written before 2026-11-28."""
    return headline.claim not in LARGER and headline.paper != LORA


@dataclass(frozen=True)
class Check:
    """What was tried, beyond the rows, about claims: those of `tasks` that say one of `says`."""

    tasks: tuple[str, ...]
    says: tuple[str, ...]
    text: str

    def is_about(self, headline: Headline) -> bool:
        """Return whether a claim is one of these."""
        task, _, says = headline.says.partition(": ")
        return task in self.tasks and says in self.says


LEVEL, CLOSE = "above prompt tuning", "close to fine-tuning"
CHECKS = (
    Check(
        (NAMES, TREC_ROW, f"{TREC_ROW}, 2,000 steps"),
        (CLOSE,),
        "Steps explain a part. With 200 steps on NER, deep prompts had 61.4, input prompts 55.2 "
        "and fine-tuning 77.3. With 100 steps on 1,000 texts of TREC, deep prompts were at 42 on "
        "dev; with 1,000 steps at 92. These rows therefore train prompts for 400 to 600 steps and "
        "fine-tuning for 300. With 2,000 steps on TREC, P-tuning v2 gains 2.6 points and stays "
        "below fine-tuning.",
    ),
    Check(
        (TREC_ROW,),
        (CLOSE,),
        "Rate and length do not explain it, on dev with one seed. 5 vectors have 90.2 at the rate "
        "3e-2 and 81.0 at 1e-1; 20 vectors have 88.2 and 24.4.",
    ),
    Check(
        ("TREC, 100 texts",),
        (CLOSE, f"M-IDPG {CLOSE}"),
        "What is read explains most of it. Logistic regression on MiniLM's frozen [CLS] state "
        "(transformers and scikit-learn, 100 random texts) has 32.2 on test, and 60.2 with 1,000 "
        "texts; on the mean over tokens, which MiniLM was trained for, 64.2 and 84.2. So the rows "
        "were run again with `readout.pooler=mean`. With 100 texts, prompt tuning rises from 33.4 "
        "to 79.1, P-tuning v2 from 34.2 to 76.1 and M-IDPG from 39.6 to 82.8; fine-tuning stays at "
        "84.",
    ),
    Check(
        ("TREC, 100 texts, mean of tokens",),
        (LEVEL, CLOSE),
        "Lower rates do not explain it. P-tuning v2's best rate is the lower of its two. One seed "
        "has 61.5, 67.3 and 71.1 on dev at 1e-3, 3e-3 and 1e-2.",
    ),
    Check(
        (f"{TREC_ROW}, mean of tokens",),
        (LEVEL, CLOSE),
        "With this read-out prompt tuning gains 7.9 points and P-tuning v2 2.9, so they are level; "
        "both stay about 3.5 below fine-tuning.",
    ),
    Check(
        ("NER",),
        ("top layers above bottom",),
        "Rates do not explain it. At 3e-2 layers 1-2 and 5-6 of six have 61.6 and 57.2. Searched "
        "among 1e-2, 3e-2 and 1e-1, both take the highest rate and have 64.1 and 59.6. The paper "
        "has 24 layers and the other order.",
    ),
    Check(
        (TREC_12,),
        (
            *(LEVEL, CLOSE, f"M-IDPG {LEVEL}", f"M-IDPG {CLOSE}", "M-IDPG above P-tuning v2"),
            *(f"top layers above layers {layers}" for layers in ("1-4", "5-8")),
        ),
        "The last layers of this ranking model explain it in part: they hold little of the task. "
        "Logistic regression (better of two penalties; 1,000 texts of train, 500 others) on the "
        "frozen mean over tokens has 75 to 83 in layers 1 to 9, then 61, 53, 55; on [CLS] 81 in 7 "
        "and 56 in 12, which is read. Vectors in layers 5-8 alone have 69, in 9-12 41, in all 74.",
    ),
    Check(
        (TREC_ROW,),
        (f"M-IDPG {CLOSE}",),
        "What is read explains half of it. With the mean over tokens M-IDPG rises from 89.2 to "
        "92.2, and fine-tuning stays at 95.",
    ),
    Check(
        ("SST-2, 1,000 texts",),
        (f"M-IDPG {CLOSE}",),
        "What is read explains most of it, on dev. With the mean over tokens one seed of M-IDPG "
        "has 82.1; with [CLS] its five have 75.8 to 78.5, and those of fine-tuning 83.0 to 84.5.",
    ),
)
FORMULAS = (
    "The formulas are not the reason: in the tests the deep prompt equals PEFT's prefix tuning to "
    "1e-5, and IDPG and Compacter equal the library's model with prompts or maps added by hand."
)
EMPTY_RTE = (
    "RTE with 32 shots: SmolLM2 is at chance with every method, so no order is seen. That P-tuning "
    "v2 is close to fine-tuning (47.65 and 47.65) would say nothing, and is not counted."
)
CUT = """
## Left out, and why

- QNLI and BoolQ: their test splits of 5,463 and 3,270 long texts cost more than all other rows.
  BoolQ has 64 labelled training texts in the data used here.
- K = 500. PPT on single texts and on choices.
"""
