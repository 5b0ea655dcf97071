"""Read-outs of spans in a context: one or none by a head, or several."""

import math
import unicodedata
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.encoding import after_space, paired
from ptrun.prompt import drawn
from ptrun.readout.base import Batch, Features, Readout, TokenRow, WordReader, word_logits
from ptrun.readout.head import Head, columns, row_limit, tokens
from ptrun.readout.languages import tokenizer_of
from ptrun.task.columns import in_parts
from ptrun.task.dataset import Task
from ptrun.task.extraction import Answer
from ptrun.types import Example, Prediction

_BEST = 20  # starts and ends that are paired, as in the official script
_STRIDE = 128  # tokens that neighbouring windows share

Span = tuple[float, int, int]
"""Score, minus the first character, the character after the last: the earliest wins a tie."""


@dataclass(frozen=True)
class Window:
    """The positions of a window's tokens in the context.

    Args:
        null: the position that means "no answer here".
        begin: the position of the first token of the context.
        starts, ends: characters of the context at which each of its tokens starts and ends.

    >>> import torch
    >>> from ptrun.readout.spans import Window
    >>> window = Window(null=0, begin=1, starts=[0, 4, 8], ends=[3, 7, 11])
    >>> window.spans(torch.eye(4, 2), longest=2)[0]  # score, - first character, end
    (0.0, -4, 11)
    """

    null: int
    begin: int
    starts: list[int]
    ends: list[int]

    def target(self, example: Example) -> list[int]:
        """Return the first answer's first and last position, or twice the null position."""
        if not example.target:
            return [self.null, self.null]
        start, end = example.target[0].start, example.target[0].start + len(example.target[0].text)
        places = enumerate(zip(self.starts, self.ends, strict=True), start=self.begin)
        inside = [i for i, (left, right) in places if left < end and right > start]
        if not inside or self.starts[0] > start or self.ends[-1] < end:
            return [self.null, self.null]
        return [inside[0], inside[-1]]

    def spans(self, scores: Tensor, longest: int) -> list[Span]:
        """Return the likeliest answers, from scores `[T, 2]`; each has at most `longest` tokens."""
        tops = [scores[:, side].topk(min(_BEST, len(scores))) for side in (0, 1)]
        starts, ends = (zip(t.indices.tolist(), t.values.tolist(), strict=True) for t in tops)
        return [
            (start_score + end_score, -self.starts[a - self.begin], self.ends[b - self.begin])
            for (a, start_score), (b, end_score) in product(starts, ends)
            if self.begin <= a <= b < min(a + longest, self.begin + len(self.starts))
            if self.starts[a - self.begin] < self.ends[b - self.begin]
            if (a, b) != (self.null, self.null)
        ]


class SpanHead(Head):
    """Linear(H, 2): the start and the end of the answer, each a softmax over a window's tokens.

    Long contexts are read in windows. The target of a window without the answer is its null
    position: the first token of an encoder, the last of other families. As in the official P-tuning
    v2 code there is no dropout before the map, and the loss is the mean of both. Unlike there,
    padding is not in the softmax, and a batch counts questions, not windows.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=ptuning_v2", "task=pocket_qa")
    >>> method.readout.scores(output, batch).shape[1]  # start and end, [K, 2]
    2
    """

    everywhere = windows = True
    keys: ClassVar[Set[str]] = {"dropout", "longest_answer"}
    longest_answer = 30
    """The most tokens of a predicted answer; 30 in the official script."""

    def __init__(self, backbone: PretrainedBackbone, task: Task):
        super().__init__(backbone, task, 2)
        self.dropout = 0.0
        self.unanswerable = bool(getattr(task, "unanswerable", False))

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize question and context in overlapping windows."""
        questions, contexts = columns(examples, self.task.fields)
        limit = row_limit(self.task, room)
        tokenizer = tokenizer_of(self.backbone, self.task)
        rows = paired(tokenizer, questions, contexts, limit, stride=_STRIDE)
        windows: list[list[int]] = [[] for _ in examples]
        for i, example in enumerate(rows["overflow_to_sample_mapping"]):
            windows[example].append(i)
        architecture, encoded = self.backbone.architecture, []
        null_first = architecture.encoder or architecture.has_blank
        for example, context, indices in zip(examples, contexts, windows, strict=True):
            read = [_window(rows, i, context, null_first=null_first) for i in indices]
            targets = [place for window in read for place in window.target(example)]
            facts = {"context": context, "windows": [[*vars(window).values()] for window in read]}
            parts = [tokens(rows, i) for i in indices]
            read_rows = [TokenRow(ids, types, list(range(len(ids)))) for ids, types in parts]
            encoded.append(Features(example.id, read_rows, targets, facts))
        return encoded

    def doubt(self, examples: Sequence[Features]) -> str | None:
        """Return a warning if some right answers are longer than any that is predicted."""
        count = 0
        for features in examples:
            ends = zip(features.targets[::2], features.targets[1::2], strict=True)
            count += any(last - first >= self.longest_answer for first, last in ends)
        if not count:
            return None
        return (
            f"{count} of {len(examples)} answers have more than {self.longest_answer} tokens, the "
            "most of a predicted one; type readout.longest_answer=N"
        )

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the starts and ends of all windows, `[]`."""
        scores = batch.by_row(self.scores(output, batch))
        padded = pad_sequence(scores, batch_first=True, padding_value=-torch.inf)
        return functional.cross_entropy(padded, batch.targets.view(-1, 2), reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the best span of each example's windows, or "" for no answer."""
        scores = iter(batch.by_row(self.scores(output, batch).cpu()))
        parts = [(f, [next(scores) for _ in f.rows]) for f in batch.features]
        return [Prediction(f.id, self._answer(f, window_scores)) for f, window_scores in parts]

    def _answer(self, features: Features, scores: list[Tensor]) -> str:
        """Return the best answer, or "" if the task is `unanswerable` and null scores higher.

        The null score is the least over windows, as in the official script.
        """
        windows = (Window(*window) for window in features.facts["windows"])
        pairs = list(zip(windows, scores, strict=True))
        null = min(sum(logits[window.null].tolist()) for window, logits in pairs)
        longest = self.longest_answer
        spans = (span for window, logits in pairs for span in window.spans(logits, longest))
        best = max(spans, default=None)
        if best is None or (self.unanswerable and null > best[0]):
            return ""
        text: str = features.facts["context"][-best[1] : best[2]]
        return text


def _window(rows: Any, i: int, context: str, *, null_first: bool) -> Window:
    """Return a window; tokens start after the space that some tokenizers include.

    `null_first` says whether no answer is at the first token; otherwise it is at the last.
    """
    texts = rows.sequence_ids(i)
    begin = texts.index(1) if 1 in texts else 0
    places = rows["offset_mapping"][i][begin : begin + texts.count(1)]
    starts = [after_space(context, start, end) for start, end in places]
    null = 0 if null_first else max(0, len(texts) - 1)
    return Window(null, begin, starts, [end for _, end in places])


class PassageReader(Readout):
    """Reads every token of a passage; a sub-class gives the odds that it belongs to an answer.

    A token belongs to an answer if its log-odds are above `least`. `others` are further thresholds
    by name; their answers are reported beside the prediction.
    """

    reads_decoder = False
    everywhere = True
    backbone: PretrainedBackbone
    task: Task
    least: float = 0.0
    others: Mapping[str, float] = {}
    teaches = True

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize question and passage; the passage is cut to the rest of the row."""
        questions, texts = columns(examples, self.task.fields)
        tokenizer = tokenizer_of(self.backbone, self.task)
        rows = paired(tokenizer, questions, texts, row_limit(self.task, room))
        encoded = []
        for i, (example, text) in enumerate(zip(examples, texts, strict=True)):
            passage, places = passage_of(rows, i, text)
            row, tags = TokenRow(*tokens(rows, i), places), passage.tags(example.target)
            encoded.append(Features(example.id, [row], tags, vars(passage)))
        return encoded

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples to train on: those whose answers are all in the cut passage."""
        features = (f for part in in_parts(examples) for f in self.encode(part, room))
        pairs = zip(examples, features, strict=True)
        return [example for example, f in pairs if Passage(**f.facts).holds(example.target)]

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the answers to each question."""
        predictions: list[Prediction | Features] = []
        for f, odds in batch.pairs(self.odds(output, batch).cpu()):
            read = partial(answers, Passage(**f.facts), odds.tolist())
            also = {name: read(least) for name, least in self.others.items()}
            predictions.append(Prediction(f.id, read(self.least), also))
        return predictions

    @abstractmethod
    def odds(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds `[K]` that a token belongs to an answer."""


# A question and its passage in one row, and the tags of the passage's tokens.
#
#     [CLS] question [SEP] passage [SEP]
#
# The passage is cut at the longest input. Every token of a gold span is tagged 1, all others of the
# passage 0 (IO tags), with all spans in one tagging. The task has checked the positions of gold
# spans, so there is no search. Question and special tokens are not read.


@dataclass(frozen=True)
class Passage:
    """The positions in a text of the tokens that are read.

    Args:
        text: the whole text, before the cut.
        starts, ends: the characters where each token starts, and before which it ends.
        words: the number of each token's word, from 0.

    >>> from ptrun.readout.spans import Passage
    >>> passage = Passage("Ann met Bob.", starts=[0, 4, 8], ends=[3, 7, 11], words=[0, 1, 2])
    >>> passage.between(0, 1)
    'Ann met'
    """

    text: str
    starts: list[int]
    ends: list[int]
    words: list[int]

    def tags(self, answers: Sequence[Answer]) -> list[int]:
        """Return 1 for each token of a word that overlaps an answer, else 0.

        A handful of QUOREF's answers end inside a word; predictions are whole words.
        """
        inside = {
            word
            for word, start, end in zip(self.words, self.starts, self.ends, strict=True)
            if any(start < a.start + len(a.text) and end > a.start for a in answers)
        }
        return [int(word in inside) for word in self.words]

    def holds(self, answers: Sequence[Answer]) -> bool:
        """Return whether no answer reaches beyond the cut."""
        last = self.ends[-1] if self.ends else 0
        return all(a.start + len(a.text.rstrip()) <= last for a in answers)

    def between(self, start: int, stop: int) -> str:
        """Return the text from one word to another, both inclusive."""
        end = len(self.words) - 1 - self.words[::-1].index(stop)
        return self.text[self.starts[self.words.index(start)] : self.ends[end]]


def passage_of(rows: Any, i: int, text: str) -> tuple[Passage, list[int]]:
    """Return the passage of a tokenized pair of texts, and its tokens' positions in the row.

    Tokens of spaces alone are left out.
    """
    places: list[int] = []
    passage, owner = Passage(text, [], [], []), None
    tokens = zip(rows.sequence_ids(i), rows["offset_mapping"][i], rows.word_ids(i), strict=True)
    for place, (side, (start, end), word) in enumerate(tokens):
        bare = after_space(text, start, end) if side == 1 else end
        if bare < end:
            number = passage.words[-1] if places else -1
            inside = places and word == owner and _within(text, passage.ends[-1], bare)
            passage.words.append(number if inside else number + 1)
            passage.starts.append(bare)
            passage.ends.append(end)
            places.append(place)
            owner = word
    return passage, places


def _within(text: str, end: int, start: int) -> bool:
    """Return whether a word continues in the next token: letters, digits and marks touch.

    The tokenizer's words alone do not suffice: some tokenizers have none, some add punctuation.
    """
    if start != end:
        return start < end  # a character of several tokens
    return all(unicodedata.category(c)[0] in "LMN" for c in text[start - 1 : start + 1])


def answers(passage: Passage, odds: Sequence[float], least: float) -> list[str]:
    """Return the texts whose tokens have log-odds above `least`, as DPT's released code does.

    There is at least one text.
    A word is taken if any of its tokens is; neighbouring words are one answer. If no token is, the
    answer is the word of the likeliest token.
    """
    taken = {word for word, z in zip(passage.words, odds, strict=True) if z > least}
    if not taken and odds:
        taken = {passage.words[max(range(len(odds)), key=odds.__getitem__)]}
    ordered = enumerate(sorted(taken))
    runs = [
        [word for _, word in run] for _, run in groupby(ordered, lambda pair: pair[1] - pair[0])
    ]
    return distinct([passage.between(run[0], run[-1]) for run in runs])


def distinct(texts: Sequence[str]) -> list[str]:
    """Drop texts that equal an earlier one but for case, and texts that are part of another."""
    unique: dict[str, str] = {}
    for text in texts:
        unique.setdefault(text.lower(), text)
    return [text for low, text in unique.items() if not any(_part(low, other) for other in unique)]


def _part(text: str, other: str) -> bool:
    """Return whether a text is a word or stem of another, or strictly inside it."""
    if text == other:
        return False
    if any(form in other for form in (f"{text} ", f" {text}", f"{text}s", f"{text}n")):
        return True
    return text in other and not other.startswith(text) and not other.endswith(text)


# A tagger that predicts for every token of a passage whether it belongs to an answer.
#
# It is the QUOREF baseline in DPT's code, after Segal et al. 2020: Linear(H, H), ReLU, dropout 0.1,
# Linear(H, 2), tags O and I. Segal et al. sum the likelihood over all taggings that give the gold
# answers. Here there is one tagging with all annotated spans, because the code's padding of that
# list counts absent taggings as "no answer". Their Viterbi decoding has no learned transitions, so
# its best path is the likelier tag of each token.


class TagHead(PassageReader, Head):
    """Two scores for each token; the loss is cross-entropy summed over tokens of the passage.

    A token is a target, so the engine's loss is the mean over the tokens of a batch. An
    encoder-decoder is read in its encoder.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=fine_tuning", "task=pocket_multispan")
    >>> len(method.readout.odds(output, batch)) == len(batch.targets)
    True
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


# The words of a passage scored by ELECTRA's head: words that look original are answers (DPT).
#
# Yao et al. 2022 on QUOREF: no pattern and no new parameters. z is the head's score of a token, and
# large z means "replaced". The sources disagree on the direction. The paper selects tokens with a
# score below 0.6, which only fits sigma(z). The released code selects those with sigma(z) above 0.6
# and trains sigma(z) towards 1 on answers, with a head whose weights it does not give. So both the
# trained direction and the probability of the threshold are options.


class PassageWords(PassageReader, WordReader, nn.Module):
    """The words of the passage that ELECTRA's head selects by a threshold.

    >>> from ptrun.testing import read
    >>> options = "method=dpt", "task=pocket_multispan", "backbone=pocket_electra"
    >>> method, batch, output = read(*options)
    >>> len(method.readout.odds(output, batch)) == len(batch.targets)
    True
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task, options: Any):
        super().__init__()
        self.backbone, self.task, self.direction = backbone, task, options.direction
        share, on = options.threshold, options.threshold_on
        if not 0 <= share <= 1:
            raise UserError(f"readout.threshold is {share}; it is a probability, 0 to 1.")
        border = math.copysign(math.inf, share - 0.5)  # the log-odds of 0 and 1
        if 0 < share < 1:
            border = math.log(share / (1 - share))
        self.least = border if on == options.direction else -border
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
