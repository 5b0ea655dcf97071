"""A cache of tokenized examples: one Arrow file for each (tokenizer, read-out, examples).

The runs of a sweep over seeds read the same examples. The name of a file is a hash of everything
its content depends on: texts, labels, length, tokenizer, read-out and code. Examples that are read
from a file give features that are read from a file: memory holds neither.
"""

import hashlib
import json
import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from ptrun.folder.digest import is_count
from ptrun.method.base import Method
from ptrun.readout.base import Features, Readout, TokenRow
from ptrun.readout.head import decoder_start
from ptrun.readout.heads import MultiHead
from ptrun.task.dataset import Task
from ptrun.task.multi import Multi
from ptrun.task.stored import Stored, code_of, stored
from ptrun.types import Example

_LOG = logging.getLogger(__name__)
TOKENS = ".tokens"
"""The folder of the files, below `outputs`."""

_PACKAGES = ("readout", "pattern", "prompt.py", "backbone")
_LEAST = 500  # examples; fewer are tokenized faster than they are read from the cache


def encoded(method: Method, examples: Sequence[Example], folder: Path) -> Sequence[Features]:
    """Return `method.encode(examples)`, read from the folder if it is there.

    Raises:
        OSError: the folder cannot be written, and the examples do not fit in memory.
    """
    if len(examples) < _LEAST:
        return method.encode(examples)
    file = folder / f"{_key(method, examples)}.arrow"
    try:
        features = stored(file, lambda: method.encoded(examples), _features)
    except OSError as error:
        if isinstance(examples, Stored):
            raise
        _LOG.warning(
            "%s: not written (%s); tokens are kept in memory", file, error.strerror or error
        )
        return method.encode(examples)
    return features if isinstance(examples, Stored) else list(features)


def _key(method: Method, examples: Sequence[Example]) -> str:
    backbone = method.backbone
    facts = [_code(), _reading(method.readout, method.task), backbone.family, method.room()]
    facts += [decoder_start(backbone), backbone.tokenizer_digest()]
    hashed = hashlib.sha256(json.dumps(facts).encode())
    if isinstance(examples, Stored):  # its file is named by its content
        hashed.update(examples.file.name.encode())
    else:
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
    facts = [type(readout).__name__, settings, str(vars(readout).get("pvp")), task.max_tokens]
    return [*facts, list(task.labels), list(task.fields), dict(task.descriptions)]


def _code() -> str:
    """Return a fingerprint of the code that encodes, and of the tokenizer library."""
    root = Path(__file__).parent.parent
    return version("tokenizers") + code_of(*(root / name for name in _PACKAGES))


def _features(row: dict[str, Any]) -> Features:
    """Return the features of a row.

    Raises:
        TypeError: a token is no number.
    """
    if not all(is_count(i) and i < 2**31 for own in row["rows"] for i in own["ids"]):
        raise TypeError("a token is no number")
    return Features(
        row["id"], [TokenRow(**own) for own in row["rows"]], row["targets"], row["facts"]
    )
