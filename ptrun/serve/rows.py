"""Rows of requests, with the texts that grow behind them and their answers."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from ptrun.backbone.choosing import Decoding, Dice, TokenScore
from ptrun.backbone.grammar import Grammar
from ptrun.method.base import Method
from ptrun.predicting.rows import Question
from ptrun.predicting.together import Loaded
from ptrun.readout.base import Features
from ptrun.readout.calls import CallForm
from ptrun.serve.structured import Structure
from ptrun.types import Prediction

AHEAD = 64
"""Tokens of a text that must fit a batch when it joins."""


@dataclass(frozen=True)
class Wish:
    """How a text is to be written; None leaves the run's own.

    `logprobs` asks for the log-probability of each token, with those of so many likeliest ones.
    `structure` is what the text has to be. With `echo` the prompt stands as it was sent, without
    the run's pattern, and the answer begins with it.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    repetition_penalty: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] | None = None
    logprobs: int | None = None
    structure: Structure | None = None
    echo: bool = False


@dataclass(eq=False)
class WaitingRow:
    """A row that waits for its answer; `done` gives it back with its prediction.

    Args:
        name: the id of its run.
        row: the fields of the run's task; for a chat or a prompt, its turns or text.
        wish: how a text is written.
        uncut: whether a prompt that does not fit is refused, not cut as in training.
        told: receives the text so far, in the thread that computes.
        number: the row's number in its request, from 1.
        choice: which of several texts after the same prompt it is.

    `scores` are those of the written tokens, and `prompt_scores` those of the prompt's, where they
    were asked for. `form` is that of calls, which the text may hold with its special tokens.
    """

    name: str
    row: Mapping[str, Any]
    wish: Wish = Wish()
    uncut: bool = False
    told: Callable[[str], None] | None = None
    number: int = 1
    choice: int = 0
    done: "Future[WaitingRow]" = field(default_factory=Future)
    loaded: Loaded = field(init=False)
    question: Question = field(init=False)
    method: Method = field(init=False)
    features: Features = field(init=False)
    prediction: Prediction = field(init=False)
    decoding: Decoding | None = None
    dice: Dice | None = None
    form: CallForm | None = None
    grammar: Grammar | None = None
    tokens: list[int] = field(default_factory=list)
    prompt_scores: tuple[TokenScore | None, ...] | None = None
    scores: list[TokenScore] = field(default_factory=list)
    ready: bool = False
    since: float = field(default_factory=time.monotonic)
    shortened: bool = False

    @property
    def ended(self) -> bool:
        """Whether a text has its end."""
        return not self.prediction.figures.get("unfinished")

    @property
    def left(self) -> int:
        """The tokens that may still be written."""
        return 0 if self.decoding is None else self.decoding.max_new_tokens - len(self.tokens)

    @property
    def unscored(self) -> bool:
        """Whether the tokens of the prompt have to be scored before anything is written."""
        asked = self.wish.logprobs is not None or not self.left
        return self.wish.echo and self.prompt_scores is None and asked

    @property
    def is_plain(self) -> bool:
        """Whether the likeliest token is written, whatever was written before."""
        usual = self.decoding and replace(self.decoding, max_new_tokens=1, stop=(), ends=())
        return usual == Decoding(1) and self.grammar is None

    @property
    def size(self) -> int:
        """The tokens of the row, with some of those that will be written."""
        return self.features.tokens + len(self.tokens) + min(AHEAD, self.left)

    @property
    def steps(self) -> bool:
        """Whether a text is written token by token, with others; beams write a whole text."""
        return self.decoding is not None and self.decoding.beams == 1 and not self.unscored

    @property
    def kind(self) -> Decoding | None:
        """What rows have in common that are computed together; None if they have no texts, yet."""
        if self.decoding is None or self.unscored:
            return None
        # each looks for its own stop texts
        alike = Decoding() if self.steps else self.decoding
        return replace(alike, max_new_tokens=0, stop=())

    def tell(self, *, whole: bool = False) -> None:
        """Tell a stream the text so far; one that has its end, or no room left, is the answer."""
        try:
            text, ended = self.text()
            if self.told is not None and not self.done.cancelled():
                self.told(_sure(text, self.decoding))
            if whole or ended or self.left <= 0:
                figures = {"unfinished": float(not ended)}
                self.give(Prediction(self.question.example.id, text, figures=figures))
        except Exception as error:
            self.fail(error)

    def text(self) -> tuple[str, bool]:
        """Return the text so far, up to a stop text, and whether it has its end."""
        assert self.decoding is not None
        ended = bool(self.tokens) and self.tokens[-1] in self.decoding.ends
        tokenizer, before, plain = self.method.backbone.tokenizer(), [], self.form is None
        if self.wish.echo:  # a space may stand between the prompt and its first token
            before = self.features.rows[0].ids
        start = len(tokenizer.decode(before, skip_special_tokens=plain))
        text = tokenizer.decode([*before, *self.tokens], skip_special_tokens=plain)[start:]
        for stop in self.decoding.stop:
            text, mark, _ = text.partition(stop)
            ended = ended or bool(mark)
        return text if self.wish.echo else text.strip(), ended

    def give(self, prediction: Prediction) -> None:
        """Set the answer."""
        if self.wish.echo:
            prompt = self.row["prompt"]
            prompt = prompt if isinstance(prompt, str) else text_of(self.loaded, prompt)
            prediction = replace(prediction, value=prompt + prediction.value)
        if self.done.set_running_or_notify_cancel():
            self.prediction = prediction
            self.done.set_result(self)

    def fail(self, error: BaseException) -> None:
        """Set an error, if there is no answer."""
        if not self.done.done() and self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)


def _sure(text: str, decoding: Decoding | None) -> str:
    """Return a text without an end that may be the beginning of a stop text."""
    stops = decoding.stop if decoding else ()
    held = (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
    return text[: len(text) - max(held, default=0)].rstrip()  # as the whole text is


def text_of(loaded: Loaded, ids: Sequence[int]) -> str:
    """Return the text of token ids."""
    tokenizer = loaded.run.backbone.tokenizer()
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
