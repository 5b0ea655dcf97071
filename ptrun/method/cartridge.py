"""Cartridge: a trained prefix of keys and values that stands for a document.

Eyuboglu et al. 2025, "Cartridges". The prefix starts as the keys and values of the document's first
`length` tokens, the first of which stays as it is (§3.2), and learns to answer as the backbone does
with the whole document in view (`ptrun.readout.distillation`). With all vectors frozen nothing is
learned, and the prefix is the first tokens of the document in view: with `length=null` all of them.
"""

from collections.abc import Mapping
from typing import ClassVar

from ptrun.method.ptuning_v2 import PTuningV2


class Cartridge(PTuningV2):
    """P-tuning v2's keys and values, trained for a document.

    >>> from ptrun.testing import read
    >>> document = "readout.document=A red boat is on the river."
    >>> options = "task=pocket_writing", "backbone=pocket_gpt2", document
    >>> method, batch, output = read("method=cartridge", "method.length=4", *options)
    >>> method.prompt().shape  # [P, 2 n, heads, d]
    torch.Size([4, 8, 4, 32])
    """

    readouts = ("distillation", "writing")
    needs: ClassVar[Mapping[str, str]] = {"left_to_right": "a left-to-right model"}
