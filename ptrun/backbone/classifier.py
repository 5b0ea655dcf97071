"""The classification head that a checkpoint was tuned with, such as that of an NLI model."""

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
"""Where the head of `...ForSequenceClassification` is, in families whose head has our form."""


@dataclass(frozen=True)
class Classifier:
    """A head `Linear(H, C)`, perhaps after a dense layer of its own, and what its rows mean.

    Args:
        labels: the names of its C rows.
        stored: where its parts are in files, `linear` and perhaps `dense`; names without `.weight`.
        pooler: what it reads, as in `ptrun.readout.pooled_head`.
        origin: whose it is, in words.
    """

    labels: Sequence[str]
    stored: Mapping[str, str]
    pooler: str
    origin: str

    @property
    def entailed(self) -> int | None:
        """The row of entailment, if it has one."""
        named = [i for i, label in enumerate(self.labels) if label.lower() in _ENTAILED]
        return named[0] if named else None

    def tensors(self, folder: Path) -> dict[str, Tensor]:
        """Return its tensors as `linear.weight` and so on."""
        wanted = {
            f"{name}.{kind}": f"{part}.{kind}"
            for part, name in self.stored.items()
            for kind in ("weight", "bias")
        }
        found: dict[str, Tensor] = {}
        for file in files.weight_files(folder):
            with safe_open(file, "pt") as opened:
                here = wanted.keys() & set(opened.keys())
                found |= {wanted[name]: opened.get_tensor(name) for name in here}
        return found


def of_config(config: Mapping[str, Any]) -> Classifier | None:
    """Return what a checkpoint's configuration says of its head; None where it has none of ours."""
    stored = _STORED.get(config.get("model_type", ""))
    tuned = any(a.endswith("ForSequenceClassification") for a in config.get("architectures") or ())
    names = config.get("id2label")
    if stored is None or not tuned or not names:
        return None
    labels = [names[key] for key in sorted(names, key=int)]
    pooler = "trainable" if "dense" in stored else "auto"
    return Classifier(labels, stored, pooler, "the checkpoint's")
