"""The words of a passage scored by ELECTRA's head: words that look original are answers (DPT).

Yao et al. 2022 on QUOREF: no pattern and no new parameters. z is the head's score of a token, and
large z means "replaced". The sources disagree on the direction. The paper selects tokens with a
score below 0.6, which only fits sigma(z). The released code selects those with sigma(z) above 0.6
and trains sigma(z) towards 1 on answers, with a head whose weights it does not give. So both the
trained direction and the probability of the threshold are options.
"""

import math

from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.base import Batch, WordReader, word_logits
from ptrun.readout.class_words import Direction
from ptrun.readout.multispan.reader import PassageReader
from ptrun.task.base import Task


class PassageWords(PassageReader, WordReader, nn.Module):
    """The words of the passage that ELECTRA's head selects by a threshold.

    Args:
        backbone: an ELECTRA discriminator.
        task: questions with several answers.
        direction: what is trained towards 1 on answers: `one_minus_sigma` (original) or `sigma`.
        threshold: a probability, 0 to 1.
        on: the probability it applies to; answers are on the side that training moves them to.
            The answers of the same threshold on the other probability are reported too.

    Raises:
        UserError: the threshold is no probability.
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        *,
        direction: Direction = "one_minus_sigma",
        threshold: float = 0.6,
        on: Direction = "sigma",
    ):
        super().__init__()
        self.backbone, self.task, self.direction = backbone, task, direction
        border = _log_odds(threshold)
        self.least = border if on == direction else -border
        other = "one_minus_sigma" if on == "sigma" else "sigma"
        self.others = {f"on_{other}": -self.least}

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return binary cross-entropy summed over tokens of the passage, `[]`.

        The code's loss is this sum over a batch; the engine's is the mean over tokens. The gradient
        differs in its norm alone, which affects clipping but not AdamW.
        """
        odds = self.odds(output, batch)
        right = batch.targets.to(odds.dtype)
        return functional.binary_cross_entropy_with_logits(odds, right, reduction="sum")

    def odds(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds `[K]` that a token belongs to an answer."""
        z = word_logits(output)[:, 0]
        return z if self.direction == "sigma" else -z


def _log_odds(threshold: float) -> float:
    """Return the log-odds of a probability, infinite at 0 and 1."""
    if not 0 <= threshold <= 1:
        raise UserError(f"readout.threshold is {threshold}; it is a probability, 0 to 1.")
    if threshold in (0, 1):
        return math.inf if threshold else -math.inf
    return math.log(threshold / (1 - threshold))
