"""The rows of `claims_real.py`, the most important first: each is a search over rates on dev."""

from dataclasses import dataclass

PROMPT_RATES = "3e-3,1e-2,3e-2"
FULL_RATES = "3e-5,1e-4,3e-4"
SMALL_RATES = "3e-4,1e-3,3e-3"


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


def smollm(claim: str, options: str, *, soft: bool = True) -> list[Row]:
    """Return rows of SmolLM2, which answers through its language-model head."""
    common = (*SMOLLM, *options.split())
    words = "method.readout=verbalizer"
    rows = {
        "manual": (("method=manual_prompt",), ""),
        "PT": (("method=prompt_tuning", words), PROMPT_RATES),
        "P-tuning v2": (("method=ptuning_v2", words), PROMPT_RATES),
        "P-tuning": (("method=ptuning",), SMALL_RATES),
        "FT": (("method=fine_tuning", words), "1e-5,3e-5,1e-4"),
    }
    if not soft:
        del rows["P-tuning"]
    return [Row(claim, name, (*common, *own), rates) for name, (own, rates) in rows.items()]


def facts() -> list[Row]:
    """Return rows of SmolLM2 on ten relations of LAMA."""
    relations = "P17,P19,P20,P27,P30,P36,P37,P103,P159,P495"
    common = (*SMOLLM, "task=lama", f"task.relations=[{relations}]", "task.vocabulary=objects")
    short = ("train.batch_size=8", "train.max_steps=60", "train.eval_every=60")
    rows = {
        "manual": (("method=manual_prompt",), ""),
        "LPAQA": (("method=manual_prompt", "method.pattern=lpaqa_gpt"), ""),
        "P-tuning": (("method=ptuning", *short), "1e-3,3e-3"),
        "P-tuning v2": (("method=ptuning_v2", "method.readout=verbalizer", *short), BEST),
    }
    return [Row(FACTS, name, (*common, *own), rates) for name, (own, rates) in rows.items()]


def parts() -> list[Row]:
    """Return rows of P-tuning v2 in two layers, and with fewer vectors, on names."""
    common = (*MINILM, *NER.split(), "method=ptuning_v2")
    layers = [
        Row(
            f"{NAMES}, depth",
            f"layers {i}-{i + 1}",
            (*common, f"method.layers=[{i},{i + 1}]"),
            BEST,
        )
        for i in (1, 3, 5)
    ]
    lengths = [
        Row(f"{NAMES}, length", f"{n} vectors", (*common, f"method.length={n}"), BEST)
        for n in (1, 5, 50)
    ]
    return [*layers, *lengths]


FACTS, NAMES = "LAMA, ten relations", "NER, 1,000 sentences"
SHORT = "train.batch_size=16 train.max_steps=200 train.eval_every=50"
FEW = f"setting=few_shot_32 {SHORT}"
TINY = "train.batch_size=16 train.max_steps=40 train.eval_every=20"
NER = (
    "task=conll03 setting=sample_size setting.n=1000 train.batch_size=16 train.max_steps=200 "
    "train.eval_every=200"
)
BEST = "1e-2,3e-2"
MAIN = ("FT", "PT", "P-tuning v2")

ROWS: tuple[Row, ...] = (
    *minilm(NAMES, NER, *MAIN),
    *minilm("TREC, 32 shots", f"task=trec {FEW}"),
    *minilm("MPQA, 32 shots", f"task=mpqa {FEW}"),
    *minilm("SST-2, 32 shots", f"task=sst2 {FEW}"),
    *minilm("Subj, 32 shots", f"task=subj {FEW}"),
    *facts(),
    *parts(),
    *minilm("RTE, 32 shots", f"task=rte {FEW}", *MAIN, "M-IDPG"),
    *minilm("CB, all 250", f"task=cb setting=full {SHORT}", *MAIN, "M-IDPG"),
    *smollm("SmolLM2, CB, all 250", f"task=cb setting=full {TINY}"),
    *smollm("SmolLM2, RTE, 32 shots", f"task=rte setting=few_shot_32 {TINY}"),
    *smollm("SmolLM2, SST-2, 32 shots", f"task=sst2 setting=few_shot_32 {TINY}", soft=False),
    *minilm("TREC, 1,000 texts", f"task=trec setting=k_1000 {SHORT}"),
    *minilm("SST-2, 1,000 texts", f"task=sst2 setting=k_1000 {SHORT}"),
)
