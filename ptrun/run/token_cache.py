"""Tokenized examples kept between runs: one JSON file for each (tokenizer, read-out, examples).

A sweep over seeds reads the same rows again and again. The name of a file is a hash of everything
its content depends on, so a changed text, label, length, tokenizer or read-out makes another file,
and so does changed code.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from ptrun.method.base import Method
from ptrun.readout.base import Features, Readout, Row
from ptrun.readout.head import decoder_start
from ptrun.readout.multi_head import MultiHead
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.types import Example

_LEAST = 500
"""Fewer examples are tokenized faster than they are read."""


def encoded(method: Method, examples: Sequence[Example], folder: Path) -> list[Features]:
    """Return `method.encode(examples)`, from the folder if it was done before."""
    if len(examples) < _LEAST:
        return method.encode(examples)
    file = folder / f"{_key(method, examples)}.json"
    if file.is_file():
        return [_read(row) for row in json.loads(file.read_text())]
    made = method.encode(examples)
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(made, default=vars))
    part.replace(file)
    return made


def _key(method: Method, examples: Sequence[Example]) -> str:
    backbone = method.backbone
    facts = [_code(), _reading(method.readout, method.task), backbone.family, method.room()]
    facts += [decoder_start(backbone), backbone.tokenizer_digest()]
    hashed = hashlib.sha256(json.dumps(facts).encode())
    for e in examples:
        hashed.update(json.dumps([e.id, dict(e.fields), e.target], default=str).encode())
    return hashed.hexdigest()[:24]


def _reading(readout: Readout, task: Task) -> list[Any]:
    """Return what a read-out and its task say of rows; of several data sets, all that theirs do."""
    if isinstance(task, Multi):
        heads: Any = cast(MultiHead, readout).heads
        return [[name, *_reading(heads[name], own)] for name, own in task.tasks.items()]
    told = {k: str(v) for k, v in vars(readout).items() if isinstance(v, str | bool | int)}
    told.pop("training", None)  # whether a module trains changes no row
    facts = [type(readout).__name__, told, str(getattr(readout, "pvp", None)), task.max_tokens]
    return [*facts, list(task.labels), list(task.fields), dict(task.descriptions)]


@cache
def _code() -> str:
    """Return what identifies the code that makes rows, and the library that tokenizes."""
    hashed = hashlib.sha256(version("tokenizers").encode())
    for package in ("readout", "prompt", "backbone"):
        for file in sorted((Path(__file__).parent.parent / package).glob("*.py")):
            hashed.update(file.read_bytes())
    return hashed.hexdigest()


def _read(row: dict[str, Any]) -> Features:
    return Features(row["id"], [Row(**own) for own in row["rows"]], row["targets"], row["facts"])
