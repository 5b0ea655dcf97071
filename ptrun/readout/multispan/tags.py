"""A tagger that predicts for every token of a passage whether it belongs to an answer.

It is the QUOREF baseline in DPT's code, after Segal et al. 2020: Linear(H, H), ReLU, dropout 0.1,
Linear(H, 2), tags O and I. Segal et al. sum the likelihood over all taggings that give the gold
answers. Here there is one tagging with all annotated spans, because the code's padding of that list
counts absent taggings as "no answer". Their Viterbi decoding has no learned transitions, so its
best path is the likelier tag of each token.
"""

from torch import Tensor, nn

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.linear import drawn
from ptrun.readout.base import Batch
from ptrun.readout.head import Head
from ptrun.readout.multispan.reader import PassageReader
from ptrun.task.base import Task


class TagHead(PassageReader, Head):
    """Two scores for each token; the loss is cross-entropy summed over tokens of the passage.

    A token is a target, so the engine's loss is the mean over the tokens of a batch. An
    encoder-decoder is read in its encoder.
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task):
        Head.__init__(self, backbone, task, 2)
        self.dropout = 0.1
        size = backbone.shape.hidden_size
        self.dense = drawn(nn.Linear(size, size))

    def read(self, output: BackboneOutput) -> Tensor:
        """Return the input of the last linear map, `[K, H]`."""
        raised: Tensor = self.dense(super().read(output).float())
        return raised.relu()

    def odds(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds `[K]` of I against O."""
        scores = self.scores(output, batch)
        return scores[:, 1] - scores[:, 0]
