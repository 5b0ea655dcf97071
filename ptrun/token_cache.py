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
from typing import Any

from ptrun.method.base import Method
from ptrun.readout.base import Features, Row
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
    part.write_text(json.dumps([asdict(f) for f in made]))
    part.replace(file)
    return made


def _key(method: Method, examples: Sequence[Example]) -> str:
    readout, task = method.readout, method.task
    told = {k: str(v) for k, v in vars(readout).items() if isinstance(v, str | bool | int)}
    pvp = str(getattr(readout, "pvp", None))
    facts = [type(readout).__name__, told, pvp, method.backbone.family, method.room()]
    facts += [task.max_tokens, list(task.labels), list(task.fields), dict(task.descriptions)]
    hashed = hashlib.sha256(json.dumps([*facts, method.backbone.tokenizer_digest()]).encode())
    for e in examples:
        hashed.update(json.dumps([e.id, dict(e.fields), e.target], default=str).encode())
    return hashed.hexdigest()[:24]


def _read(row: dict[str, Any]) -> Features:
    return Features(row["id"], [Row(**own) for own in row["rows"]], row["targets"], row["facts"])
