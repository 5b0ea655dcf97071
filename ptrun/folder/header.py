"""The header of prompt and state files: one key, because safetensors orders several at random.

Equal tensors and headers are then equal bytes.
"""

import hashlib
import json
from collections.abc import Mapping

from ptrun.files import from_json

PROMPT = "prompt.safetensors"
"""The file of a run's trained prompt and head."""
_KEY = "ptrun"
DIGEST = "digest"
"""The key of the digest in a header."""


def packed(header: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    return {_KEY: json.dumps(dict(header), sort_keys=True)}


def combined(hashes: Mapping[str, str], header: Mapping[str, str]) -> str:
    """Return the digest of a file from the hashes of its tensors: 32 hexadecimal digits.

    The hash of a tensor is that of `DTYPE SHAPE`, as torch prints them, and its bytes.
    """
    text = json.dumps([dict(hashes), dict(header)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def unpacked(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the header of metadata; older versions of ptrun wrote it as it is.

    Raises:
        ValueError: it is damaged.
    """
    found = dict(metadata or {})
    header = dict(from_json(found[_KEY])) if _KEY in found else found
    if not all(isinstance(value, str) for value in header.values()):
        raise ValueError("a value of its header is no text")
    return header
