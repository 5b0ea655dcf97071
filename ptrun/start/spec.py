"""`start=`: where a prompt begins, as the configuration says it.

| start             | the prompt begins as                                                        |
|-------------------|-----------------------------------------------------------------------------|
| `random`          | the method's own draw; the default                                          |
| `normal[:STD]`    | N(0, STD^2); 0.02 if not given                                              |
| `uniform[:BOUND]` | U(-BOUND, BOUND); 0.5 if not given (Lester et al. 2021 §3.2)                 |
| `identical`       | one vector from N(0, 0.1^2) in every row: PPT's official random start       |
| `labels`          | the label words in turn (PPT)                                               |
| `vocabulary`      | words drawn evenly from the vocabulary by the model seed (PPT)              |
| `top_1000`        | words of the first 1,000 ids, shuffled by the model seed (PPT)              |
| `task_words`      | the commonest words of what train and dev read, shuffled so (PPT)           |
| `text:WORDS`      | these words in turn                                                         |
| `run:RUN`         | another run's prompt, by run id or folder (MPT-2); of a run that tuned the  |
|                   | backbone and learned no prompt, that backbone (supplementary training)      |
| `pretrained`      | the prompt of a run on another task, found or made first, that PPT has for  |
|                   | this kind; `pretrained:TASK` names it (`ptrun.run.pretraining`)            |

Random starts and words need a method that learns input vectors; `run` and `pretrained` are for
every method, and leave that run's head behind, and a backbone that was tuned beside a prompt. Sizes
are those of the vectors, whatever `method.rescale` is. A text with commas is typed as
'start="text:good, bad"'.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from ptrun.backbone.tuned import Tuned
from ptrun.config.suggest import unknown
from ptrun.errors import UserError

WITH_SIZE: Mapping[str, float] = {"normal": 0.02, "uniform": 0.5, "identical": 0.1}
WORDS = ("labels", "vocabulary", "top_1000", "task_words", "text")
_SIZED, _NAMED = ("normal", "uniform"), ("text", "run", "pretrained")
OTHERS = ("run", "pretrained")
KINDS = ("random", *WITH_SIZE, *WORDS, *OTHERS)


@dataclass(frozen=True)
class Start:
    """Where a prompt begins.

    Args:
        kind: one of `KINDS`.
        value: the text, or the task or run that is learned first; else empty.
        size: standard deviation or bound of a random start.
        folder: of another run, and `digest` the content of what is taken from it.
        tuned: the backbone that run tuned, if that is what is taken.
    """

    kind: str
    value: str = ""
    size: float = 0.0
    folder: Path | None = None
    digest: str = ""
    tuned: Tuned | None = None

    @property
    def takes(self) -> str | None:
        """What is taken from another run: `backbone`, with EFL its head too, or `prompt`."""
        if self.kind != "run":
            return None
        return "backbone" if self.tuned else "prompt"

    def __str__(self) -> str:
        """Return how it is typed; another run by what is taken from it, not by its place."""
        if self.kind in _SIZED:
            return f"{self.kind}:{self.size:g}"
        return f"{self.kind}:{self.digest or self.value}" if self.kind in _NAMED else self.kind

    def record(self) -> dict[str, str] | None:
        """Return whose prompt is begun as, and its fingerprint; None where it is nobody's."""
        return {"run_id": self.folder.name, "prompt": self.digest} if self.folder else None


def parse(text: str | None) -> Start:
    """Return what a `start=` says, another run not yet looked for.

    Raises:
        UserError: there is no such start, or what follows the colon does not fit.
    """
    kind, colon, value = (text or "random").partition(":")
    if kind not in KINDS:
        raise UserError(unknown(f"start={text}", kind, KINDS))
    if kind in ("text", "run") and not value.strip():
        what = "words" if kind == "text" else "a run id or a run's folder"
        raise UserError(f"start={text}: give {what} after the colon, start={kind}:...")
    if kind not in (*_NAMED, *_SIZED) and colon:
        raise UserError(f"start={text}: nothing may follow; type start={kind}.")
    size = _size(kind, value) if kind in _SIZED and colon else WITH_SIZE.get(kind, 0.0)
    return Start(kind, value.strip() if kind in _NAMED else "", size)


def _size(kind: str, value: str) -> float:
    try:
        size = float(value)
    except ValueError:
        size = 0.0
    if not (size > 0 and isfinite(size)):
        raise UserError(f"start={kind}:{value}: give a number above 0, such as start={kind}:0.02.")
    return size
