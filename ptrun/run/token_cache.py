"""A cache of tokenized examples: one JSON file for each (tokenizer, read-out, examples).

The runs of a sweep over seeds read the same examples. The name of a file is a hash of everything
its content depends on: texts, labels, length, tokenizer, read-out and code.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from ptrun.method.base import Method
from ptrun.readout.base import Features, Readout, Row
from ptrun.readout.head import decoder_start
from ptrun.readout.multi_head import MultiHead
from ptrun.run.result import write_text
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.types import Example

_LEAST = 500  # examples; fewer are tokenized faster than they are read from the cache


def encoded(method: Method, examples: Sequence[Example], folder: Path) -> list[Features]:
    """Return `method.encode(examples)`, read from the folder if it is there."""
    if len(examples) < _LEAST:
        return method.encode(examples)
    file = folder / f"{_key(method, examples)}.json"
    if file.is_file():
        return [_features(row) for row in json.loads(file.read_text())]
    features = method.encode(examples)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(file, json.dumps(features, default=vars))
    return features


def _key(method: Method, examples: Sequence[Example]) -> str:
    backbone = method.backbone
    facts = [_code(), _reading(method.readout, method.task), backbone.family, method.room()]
    facts += [decoder_start(backbone), backbone.tokenizer_digest()]
    hashed = hashlib.sha256(json.dumps(facts).encode())
    for e in examples:
        hashed.update(json.dumps([e.id, dict(e.fields), e.target], default=str).encode())
    return hashed.hexdigest()[:24]


def _reading(readout: Readout, task: Task) -> list[Any]:
    """Return the settings of a read-out and its task that decide how examples are encoded."""
    if isinstance(task, Multi):
        heads: Any = cast(MultiHead, readout).heads
        return [[name, *_reading(heads[name], own)] for name, own in task.tasks.items()]
    settings = {k: str(v) for k, v in vars(readout).items() if isinstance(v, str | bool | int)}
    settings.pop("training", None)  # the mode of the module changes no row
    facts = [type(readout).__name__, settings, str(getattr(readout, "pvp", None)), task.max_tokens]
    return [*facts, list(task.labels), list(task.fields), dict(task.descriptions)]


@cache
def _code() -> str:
    """Return a fingerprint of the code that encodes, and of the tokenizer library."""
    hashed = hashlib.sha256(version("tokenizers").encode())
    for package in ("readout", "prompt", "backbone"):
        for file in sorted((Path(__file__).parent.parent / package).glob("*.py")):
            hashed.update(file.read_bytes())
    return hashed.hexdigest()


def _features(row: dict[str, Any]) -> Features:
    return Features(row["id"], [Row(**own) for own in row["rows"]], row["targets"], row["facts"])
