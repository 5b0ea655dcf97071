"""The papers' claims on small pretrained models and public data, from `claims.json`.

`benchmarks/claims_real.py` writes that file. Its page says how the scores were measured.
"""

import json
from collections.abc import Collection
from importlib import resources
from typing import Any


def claims(papers: Collection[str]) -> dict[str, Any]:
    """Return the claims of papers, by their printed names, and how they were measured."""
    text = resources.files("ptrun.ledger.page").joinpath("claims.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return {**content, "claims": [one for one in content["claims"] if one["paper"] in papers]}
