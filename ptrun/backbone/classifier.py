"""The classification head of a tuned checkpoint, such as an NLI model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from ptrun.backbone import files

_ENTAILED = ("entailment", "entail", "entailed")
_STORED = {
    "roberta": {"dense": "classifier.dense", "linear": "classifier.out_proj"},
    "bert": {"linear": "classifier"},
    "albert": {"linear": "classifier"},
}
"""Tensors of the head of `...ForSequenceClassification`, where it has our form."""


@dataclass(frozen=True)
class Classifier:
    """A head `Linear(H, C)`, optionally after its own dense layer, and its labels.

    Args:
        labels: the names of its C rows.
        stored: tensor names in the files, without `.weight`, of `linear` and optionally `dense`.
        pooler: the pooler before it, as in `ptrun.readout.pooled_head`.
        origin: where it comes from, for messages.
    """

    labels: Sequence[str]
    stored: Mapping[str, str]
    pooler: str
    origin: str

    @property
    def entailed(self) -> int | None:
        """The row of entailment, or None without one."""
        rows = (i for i, label in enumerate(self.labels) if label.lower() in _ENTAILED)
        return next(rows, None)

    def tensors(self, folder: Path) -> dict[str, Tensor]:
        """Return the tensors of the head by `linear.weight` and so on."""
        names = {
            f"{name}.{kind}": f"{part}.{kind}"
            for part, name in self.stored.items()
            for kind in ("weight", "bias")
        }
        tensors: dict[str, Tensor] = {}
        for file in files.weight_files(folder):
            with safe_open(file, "pt") as opened:
                here = names.keys() & set(opened.keys())
                tensors |= {names[name]: opened.get_tensor(name) for name in here}
        return tensors


def of_config(config: Mapping[str, Any]) -> Classifier | None:
    """Return the head that a configuration describes, or None if it has none of our form."""
    stored = _STORED.get(config.get("model_type", ""))
    tuned = any(a.endswith("ForSequenceClassification") for a in config.get("architectures") or ())
    names = config.get("id2label")
    if stored is None or not tuned or not names:
        return None
    labels = [names[key] for key in sorted(names, key=int)]
    pooler = "trainable" if "dense" in stored else "auto"
    return Classifier(labels, stored, pooler, "the checkpoint's")
