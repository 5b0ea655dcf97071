"""The settings of pre-training: `workshop/conf/<backbone>.yaml`, every field an override."""

from dataclasses import dataclass
from typing import Any, Literal

from ptrun.errors import UserError

Objective = Literal["masked", "replaced", "causal", "denoising", "infilling"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One pre-training run; lengths and batches in tokens, rates per step.

    Args:
        name: name of the new backbone.
        objective: `masked` words (BERT), `replaced` tokens (ELECTRA), `causal` next token (GPT-2),
            `denoising` of spans behind sentinels (T5), `infilling` of blanks (GLM).
        model: the transformers configuration; the vocabulary size is filled in.
        vocabulary: most entries of the tokenizer.
        initial: for `masked` and `replaced`, a folder whose sizes, weights and tokenizer the model
            starts from; of a model of another type the encoder. `model` then has changes alone,
            such as of dropout.
        generator: for `replaced`, the masked model that writes the replacements: a shipped name
            or a folder. The discriminator has its tokenizer and, without `initial`, starts from its
            weights.
        unseen: for `replaced`, the share of the other words that the generator does not see. A
            generator as good as the discriminator writes only words that fit, and the discriminator
            never sees a contradiction. ELECTRA's generators have 1/4 to 1/2 of its size.
        corpus: `pocket`, or a folder with `{train,validation}.jsonl[.gz]` of `{"doc": text}`.
        out: output folder; null is `outputs/pretrain/<name>`.
        device: `cpu`, `cuda`, or `auto`: a GPU if there is one.
        steps: number of optimizer steps.
        batch: tokens per step, with padding.
        length: most tokens of a row.
        rate: peak learning rate.
        warmup: share of the steps with a rising rate.
        decay: weight decay.
        seed: random seed.
        masked: share of the tokens that are masked, replaced or cut out.
        evenness: 0 masks all words equally often; higher values mask rare words more often.
        joined: chance that a masked token includes the next one (`denoising`, `infilling`).
        answer_length: most tokens of a row in every second batch, which hides words of the last
            sentences only; 0 for no such batches.
        answer_batch: tokens of such a batch.
        start_scale: deviation of the word embeddings at the start; T5 does not normalise them.
        log_every: steps between lines of the log.
    """

    name: str
    objective: Objective
    model: dict[str, Any]
    vocabulary: int
    initial: str | None = None
    generator: str | None = None
    unseen: float = 0.0
    corpus: str = "pocket"
    out: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    steps: int
    batch: int = 4096
    length: int = 128
    rate: float
    warmup: float = 0.06
    decay: float = 0.01
    seed: int = 0
    masked: float = 0.15
    evenness: float = 0.35
    joined: float = 0.0
    answer_length: int = 26
    answer_batch: int = 2048
    start_scale: float = 0.05
    log_every: int = 100

    @property
    def origin(self) -> str | None:
        """The masked model that it starts from, if any."""
        return self.generator or self.initial

    def __post_init__(self) -> None:
        """Check the ranges of the numbers, and the models it starts from."""
        for name in ("steps", "batch", "length", "log_every", "vocabulary", "answer_batch"):
            if getattr(self, name) < 1:
                raise UserError(f"pretrain.{name} is {getattr(self, name)}; use 1 or more.")
        for name in ("masked", "unseen", "warmup", "joined"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(
                    f"pretrain.{name} is {getattr(self, name)}; use 0 or more, less than 1."
                )
        if self.rate <= 0:
            raise UserError(f"pretrain.rate is {self.rate}; use more than 0.")
        if self.initial is not None and self.objective not in ("masked", "replaced"):
            raise UserError(
                f"pretrain.initial is for objective=masked or replaced, not {self.objective}."
            )
        if self.corpus != "pocket" and self.generator == "pocket_bert":
            raise UserError(
                f"corpus={self.corpus}: {self.name} needs generator=FOLDER, a masked model of that "
                "corpus.\nType `python -m workshop.pretrain backbone=pocket_bert corpus=... "
                "out=FOLDER` first."
            )
