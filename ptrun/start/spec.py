"""`start=`: the initial value of a prompt.

| start             | initial value of the prompt                                                 |
|-------------------|-----------------------------------------------------------------------------|
| `random`          | the method's own initialization; the default                                |
| `normal[:STD]`    | N(0, STD^2); STD is 0.02 by default                                         |
| `uniform[:BOUND]` | U(-BOUND, BOUND); BOUND is 0.5 by default (Lester et al. 2021 §3.2)         |
| `identical[:STD]` | one vector from N(0, STD^2) in every row; STD is 0.1 by default, PPT's      |
|                   | official random start on T5 (on CPM-2 0.001)                                |
| `zero`            | zeros                                                                       |
| `labels`          | the label words, repeated (PPT)                                             |
| `vocabulary`      | words drawn uniformly from the vocabulary with the model seed (PPT)         |
| `top_1000`        | words of the first 1,000 ids, shuffled with the model seed (PPT)            |
| `task_words`      | the most frequent words of train and dev, shuffled with the model seed (PPT)|
| `text:WORDS`      | these words, repeated                                                       |
| `context:TEXT`    | the keys and values that the backbone computes of the text's first tokens,  |
|                   | or of the text of `context:@FILE`, or of `readout.document`; for            |
|                   | `ptuning_v2`                                                                |
| `spread:TEXT`     | the same of runs of up to 16 tokens that are spread evenly over the text    |
| `demonstrations:K`| the same of K examples of train, drawn as those of method=in_context; `cpt` |
|                   | starts from their embeddings                                                |
| `run:RUN`         | the prompt of another run, by run id or folder (MPT-2); if that run tuned   |
|                   | its backbone and has no prompt, the backbone (supplementary training)       |
| `joined:A+B`      | the prefixes of several runs, one after another; for `ptuning_v2`.          |
|                   | `multitask_prompt` learns from these runs, `attempt` mixes their prompts    |
| `peft:DIR`        | the adapter of a PEFT folder (`ptrun.start.peft`)                           |
| `pretrained`      | the prompt of a prerequisite run on PPT's task for this kind of task;       |
|                   | `pretrained:TASK` names another task (`ptrun.start.pretraining`)            |

Words need a method that learns input vectors; `zero` and random starts also work with
`ptuning_v2` if it learns keys and values as they are. `run` and `pretrained` work with
every method, `peft` with the methods that PEFT has. They do not copy the head of that run, nor a
backbone tuned with a prompt. Sizes are those of the vectors, whatever `method.rescale` is. Quote a
text with commas:
'start="text:good, bad"'.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ptrun.backbone.weights import Tuned
from ptrun.errors import UserError, unknown

WITH_SIZE: Mapping[str, float] = {"normal": 0.02, "uniform": 0.5, "identical": 0.1}
CONTEXTS = ("context", "spread", "demonstrations")
"""Starts from the keys and values of a text."""
WORDS = ("labels", "vocabulary", "top_1000", "task_words", "text")
_NAMED = ("text", *CONTEXTS, "run", "joined", "peft", "pretrained")
_VALUES = {
    "text": "words",
    "run": "a run id or a run's folder",
    "peft": "a PEFT folder",
    "joined": "run ids or folders, joined by +",
    "demonstrations": "a number of examples, such as 8,",
}
OTHERS = ("run", "pretrained")
CONTINUE = "continue"
"""A run that goes on: `ptrun.runs.longer`. It is typed as `continue=`."""
NUMBERS = (*WITH_SIZE, "zero")
"""Starts that need no words."""
KINDS = ("random", *NUMBERS, *WORDS, *CONTEXTS, "joined", "peft", *OTHERS)


@dataclass(frozen=True)
class Start:
    """The start of a prompt.

    Args:
        kind: one of `KINDS`.
        value: the text, the run or the task of the prerequisite run; else empty. Of a context its
            text, also if a file has it, or the number of demonstrations.
        size: standard deviation or bound of a random start.
        folder: folder of the other run, or of the PEFT adapter.
        digest: fingerprint of what is copied from there, or of a context.
        tuned: the tuned backbone of the other run, if it is used.
        folders: the folders of several runs.
        steps: of the other run whose state is taken over; 0 if none is.
        told: warnings about what begins anew.
    """

    kind: str
    value: str = ""
    size: float = 0.0
    folder: Path | None = None
    digest: str = ""
    tuned: Tuned | None = None
    folders: tuple[Path, ...] = ()
    steps: int = 0
    told: tuple[str, ...] = ()

    @property
    def takes(self) -> str | None:
        """What is copied from another run: `backbone` (with EFL also its head) or `prompt`."""
        if self.kind in ("joined", "peft"):
            return "prompt"
        if self.kind != "run":
            return None
        return "backbone" if self.tuned else "prompt"

    def __str__(self) -> str:
        """Return the value of `start=`; a run or a file is named by its digest, not its place."""
        if self.kind in WITH_SIZE:
            return f"{self.kind}:{self.size:g}"
        named = self.kind in (*_NAMED, CONTINUE)
        return f"{self.kind}:{self.digest or self.value}" if named else self.kind

    def record(self) -> dict[str, Any] | None:
        """Return the id of the other run or the PEFT folder's name, and the digest; else None."""
        if self.kind == CONTINUE:
            return {"run_id": self.value, "digest": self.digest, "steps": self.steps}
        return {"run_id": self.folder.name, "prompt": self.digest} if self.folder else None


def parse(text: str | None) -> Start:
    """Return the start of a `start=` value, without a search for the other run."""
    kind, colon, value = (text or "random").partition(":")
    if kind not in KINDS:
        raise UserError(unknown(f"start={text}", kind, KINDS))
    counts = kind != "demonstrations" or (value.isdecimal() and int(value))
    if kind in _VALUES and not (value.strip() and counts):
        raise UserError(f"start={text}: give {_VALUES[kind]} after the colon, start={kind}:...")
    if kind not in (*_NAMED, *WITH_SIZE) and colon:
        raise UserError(f"start={text}: {kind} takes no value; type start={kind}.")
    size = WITH_SIZE.get(kind, 0.0)
    if size and colon:
        try:
            size = float(value)
        except ValueError:
            size = 0.0
        if not (size > 0 and isfinite(size)):
            raise UserError(f"start={text}: give a number above 0, such as start={kind}:0.02.")
    return Start(kind, value.strip() if kind in _NAMED else "", size)


def recorded(text: str | None) -> str:
    """Return `start=` as a run records it: with its size, a text as its digest; a run as typed."""
    start = parse(text)
    if start.kind in ("context", "spread") and start.value:
        from ptrun.readout.document import digest_of, read_document  # they import torch

        return f"{start.kind}:{digest_of(read_document(start.value, f'start={start.kind}'))}"
    return str(start) if start.kind in WITH_SIZE else text or "random"
