"""The header of prompt and state files: one key, because safetensors orders several at random.

Equal tensors and headers are then equal bytes.
"""

import json
from collections.abc import Mapping

_KEY = "ptrun"


def packed(header: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    return {_KEY: json.dumps(dict(header), sort_keys=True)}


def unpacked(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the header of metadata; older versions of ptrun wrote it as it is.

    Raises:
        ValueError: it is damaged.
    """
    found = dict(metadata or {})
    return dict(json.loads(found[_KEY])) if _KEY in found else found
