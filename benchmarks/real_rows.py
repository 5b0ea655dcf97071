"""The rows of `claims_real.py`, the most important first: each is a search over rates on dev."""

from dataclasses import dataclass

PROMPT_RATES = "3e-3,1e-2,3e-2"
FULL_RATES = "3e-5,1e-4,3e-4"
SMALL_RATES = "3e-4,1e-3,3e-3"
ENCODER_RATES = "1e-4,1e-3,1e-2"


@dataclass(frozen=True)
class Row:
    """One method on one task: a search over `rates` on dev, then fresh seeds on test.

    `options` are overrides. `rates` is empty for a method that trains nothing.
    """

    claim: str
    row: str
    options: tuple[str, ...]
    rates: str

    @property
    def name(self) -> str:
        """The name of its folder and of its record."""
        return f"{self.claim}: {self.row}"


MINILM = ("backbone=minilm_l6", "backbone.path={weights}/minilm_l6")
SMOLLM = ("backbone=smollm2_135m", "backbone.path={weights}/smollm2_135m")
METHODS = {
    "FT": (("method=fine_tuning",), FULL_RATES),
    "PT": (("method=prompt_tuning",), PROMPT_RATES),
    "P-tuning v2": (("method=ptuning_v2",), PROMPT_RATES),
    "M-IDPG": (("method=idpg",), SMALL_RATES),
    "S-IDPG": (("method=idpg_s",), SMALL_RATES),
    "adapter": (("method=adapter",), SMALL_RATES),
    "Compacter": (("method=compacter",), SMALL_RATES),
    "LoRA": (("method=lora",), SMALL_RATES),
}


def minilm(claim: str, options: str, *only: str) -> list[Row]:
    """Return rows of MiniLM, one a method."""
    common = (*MINILM, *options.split())
    wanted = only or tuple(METHODS)
    return [
        Row(claim, name, (*common, *own), rates)
        for name, (own, rates) in METHODS.items()
        if name in wanted
    ]


def smollm(claim: str, options: str) -> list[Row]:
    """Return rows of SmolLM2, which answers through its language-model head."""
    common = (*SMOLLM, *options.split())
    words = "method.readout=verbalizer"
    rows = {
        "manual": (("method=manual_prompt",), ""),
        "PT": (("method=prompt_tuning", words), PROMPT_RATES),
        "P-tuning v2": (("method=ptuning_v2", words), PROMPT_RATES),
        "P-tuning": (("method=ptuning", PATTERN), ENCODER_RATES),
        "FT": (("method=fine_tuning", words), FULL_RATES),
    }
    return [Row(claim, name, (*common, *own), rates) for name, (own, rates) in rows.items()]


PATTERN = "'task.pattern=\"{~sentence} {soft} {soft} It was {mask}.\"'"
SHORT = "train.batch_size=16 train.max_steps=200 train.eval_every=50"
FEW = f"setting=few_shot_32 {SHORT}"
NER = "task=conll03 setting=sample_size setting.n=1000 train.batch_size=16 train.max_steps=200"
MAIN = ("FT", "PT", "P-tuning v2")

ROWS: tuple[Row, ...] = (
    *minilm("NER, 1,000 sentences", f"{NER} train.eval_every=200", *MAIN),
    *minilm("RTE, 32 shots", f"task=rte {FEW}"),
    *minilm("CB, all 250", f"task=cb setting=full {SHORT}"),
    *minilm("SST-2, 32 shots", f"task=sst2 {FEW}"),
    *minilm("TREC, 32 shots", f"task=trec {FEW}"),
    *minilm("MPQA, 32 shots", f"task=mpqa {FEW}"),
    *minilm("Subj, 32 shots", f"task=subj {FEW}"),
)
