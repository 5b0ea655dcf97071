"""Tokenized examples kept between runs: one JSON file for each (tokenizer, read-out, examples).

A sweep over seeds reads the same rows again and again. The name of a file is a hash of everything
its content depends on, so a changed text, label, length or tokenizer makes another file.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.types import Example

_LEAST = 500
"""Fewer examples are tokenized faster than they are read."""


def encoded(method: Method, examples: Sequence[Example], folder: Path) -> list[Features]:
    """Return `method.encode(examples)`, from the folder if it was done before."""
    if len(examples) < _LEAST:
        return method.encode(examples)
    file = folder / f"{_key(method, examples)}.json"
    if file.is_file():
        return [Features(**row) for row in json.loads(file.read_text())]
    made = method.encode(examples)
    folder.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps([asdict(f) for f in made]))
    part.replace(file)
    return made


def _key(method: Method, examples: Sequence[Example]) -> str:
    readout, task = type(method.readout).__name__, method.task
    facts = [readout, method.backbone.family, method.room(), task.max_tokens, list(task.labels)]
    hashed = hashlib.sha256(json.dumps([*facts, method.backbone.tokenizer_digest()]).encode())
    for e in examples:
        hashed.update(json.dumps([e.id, dict(e.fields), e.target], default=str).encode())
    return hashed.hexdigest()[:24]
