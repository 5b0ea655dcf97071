"""A tagger that tells for every token of a passage whether it belongs to an answer.

The QUOREF baseline left in DPT's code, after Segal et al. 2020: Linear(H, H), ReLU, dropout 0.1,
Linear(H, 2), tags O and I. Segal et al. sum the likelihood over all taggings that give the gold
answers; here there is one, with all annotated spans (specified so since the code's padding of that
list counts absent taggings as "no answer"). They decode by Viterbi; without learned transitions,
and since any O and I may follow each other, the best path is the likelier tag of each token.
"""

from torch import Tensor, nn

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.readout.base import Batch
from ptrun.readout.head import Head
from ptrun.readout.multispan_reader import PassageReader
from ptrun.task.base import Task


class TagHead(PassageReader, Head):
    """Two scores a token; the loss is cross-entropy summed over tokens of the passage.

    A token is a target: the engine's loss is the mean over the tokens of a batch. An
    encoder-decoder answers from its encoder.
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task):
        Head.__init__(self, backbone, task, 2)
        self.dropout = 0.1
        size = backbone.shape.hidden_size
        self.dense = nn.Linear(size, size)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def read(self, output: BackboneOutput) -> Tensor:
        """Return what the last map reads, `[K, H]`."""
        raised: Tensor = self.dense(super().read(output).float())
        return raised.relu()

    def odds(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return by how much I is likelier than O, `[K]`, as log-odds."""
        scores = self.scores(output, batch)
        return scores[:, 1] - scores[:, 0]
