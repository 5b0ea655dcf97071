"""Fine-tuning: the whole backbone is learned, nothing is added to the input.

With a linear head it is the baseline FT of all five papers. With `readout: verbalizer` it tunes on
a pattern: MP fine-tuning of P-tuning, PET without ensembles, FT of PPT.
"""

from torch import nn

from ptrun.method.base import Method


class FineTuning(Method):
    """Learns the backbone and the head that reads it, with a pooler if the read-out has one.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=fine_tuning")
    >>> method.learned_parameters()["backbone"]
    1165312
    """

    tunes_backbone = True

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the head's and the backbone's parameters; a pooler only if it is read."""
        body = self.backbone.body(decoder=self.readout.reads_decoder, head=self.reading.tunes_head)
        unread = () if self.readout.reads_pooler else ("pooler.",)
        parameters = {name: p for name, p in body.items() if not name.startswith(unread)}
        return super().learned() | {f"backbone.{name}": p for name, p in parameters.items()}
