"""`readout=verbalizer`: words of a pattern through the frozen language-model head."""

import random
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, on_device
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP
from ptrun.pattern.slots import Border
from ptrun.readout.base import (
    Batch,
    ClassWeights,
    Features,
    Readout,
    Thresholds,
    TokenRow,
    word_logits,
)
from ptrun.readout.cloze import Cloze
from ptrun.readout.label_words import FactWords, LabelWords
from ptrun.readout.multilabel import LabelsWords
from ptrun.readout.patterns import choose, worded
from ptrun.readout.reading import Reading
from ptrun.task.dataset import Task
from ptrun.types import Example, Prediction

# Scores written candidates by the probability of their words in the pattern's gap.
#
# Each candidate has one row, with as many masks as the candidate has tokens. Where the pattern
# lists options, a candidate is spelled as in that list.

Objective = Literal["margin", "batch_margin", "softmax", "as_scored"]
Scored = Literal["sum", "mean"]
Among = Literal["labels", "vocabulary", "auto"]


class Candidates(Cloze):
    """The candidate with the likeliest words: an option of a question, an entity of a passage.

    In training, a masked backbone predicts all tokens at once; in evaluation it fills one mask at a
    time, the likeliest right token first (PET). Other families read each token after those before.
    Each option is trained in its own row.

    >>> from ptrun.testing import read
    >>> from ptrun.types import Example
    >>> fields = {"premise": "It rained.", "question": "so", "options": ["I ran.", "I sat."]}
    >>> rows = [Example("id", fields, 0)]
    >>> method, batch, output = read("method=manual_prompt", "task=copa", examples=rows)
    >>> len(batch), output.logits.shape  # a row an option, [K, V] at their masks
    (2, torch.Size([4, 2648]))
    """

    teaches = True
    keys: ClassVar[Set[str]] = {"literal_sep", "objective", "scored", "swapped"}
    options: "VerbalizerReading"

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the training examples, followed by the swapped ones."""
        swapped = []
        for example in examples if self.options.swapped and self.task.answer == "option" else []:
            options = list(example.fields["options"])[::-1]
            fields, right = {**example.fields, "options": options}, len(options) - 1
            swapped.append(Example(f"{example.id}-swapped", fields, right - example.target))
        return [*examples, *swapped]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the objective summed over examples, `[]`."""
        terms = []
        sums = (self.options.objective, self.options.scored) == ("as_scored", "sum")
        for features, logs in batch.pairs(self._log_probabilities(output, batch)):
            scores = _sums(features, logs)
            if not sums:
                scores = scores / on_device(features.facts["sizes"], logs.device)
            terms.append(self._term(features, scores))
        return torch.stack(terms).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest candidate of each example, or rows with one more mask filled."""
        pairs = batch.pairs(self._log_probabilities(output, batch).cpu())
        if self.backbone.architecture.fills_masks:
            return [self._fill(f, logs) for f, logs in pairs]
        return [self._best(f, _sums(f, logs)) for f, logs in pairs]

    def _term(self, features: Features, scores: Tensor) -> Tensor:
        """Return one example's loss: the mean over right candidates, each against all wrong ones.

        It is 0 if no candidate is right or none is wrong.
        """
        right = features.facts["right"]
        rows = list(enumerate(scores.unbind()))
        if not 0 < sum(i in right for i, _ in rows) < len(rows):
            return 0 * scores.sum()
        good = torch.stack([score for i, score in rows if i in right])
        bad = torch.stack([score for i, score in rows if i not in right])
        if self.options.objective != "margin":
            rivals = torch.cat([good[:, None], bad.expand(len(good), -1)], dim=1)
            return -rivals.log_softmax(dim=1)[:, 0].mean()
        return (1 - good[:, None] + bad[None, :]).clamp(min=0).mean()

    def _log_probabilities(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-probability of each candidate token, `[K]`."""
        logits = word_logits(output)
        words = [word for f in batch.features for tokens in f.facts["words"] for word in tokens]
        index = on_device(words, logits.device)
        return -functional.cross_entropy(logits, index, reduction="none")

    def _fill(self, features: Features, logs: Tensor) -> Prediction | Features:
        """Fill each row's likeliest mask; return the prediction when no mask is left."""
        words, totals = features.facts["words"], list(features.facts["totals"])
        rows, left = [], []
        split = torch.split(logs, [len(tokens) for tokens in words])
        for i, (row, tokens, log) in enumerate(zip(features.rows, words, split, strict=True)):
            if tokens:
                best = int(log.argmax())
                totals[i] += float(log[best])
                row = row.filled(best, tokens[best])
                tokens = tokens[:best] + tokens[best + 1 :]
            rows.append(row)
            left.append(tokens)
        if any(left):
            facts = {**features.facts, "words": left, "totals": totals}
            return replace(features, rows=rows, facts=facts)
        return self._best(features, torch.tensor(totals))

    def _best(self, features: Features, sums: Tensor) -> Prediction:
        """Return the candidate with the best score, from sums of log-probabilities."""
        sizes = torch.tensor(features.facts["sizes"], device=sums.device)
        scores = sums / sizes if self.options.scored == "mean" else sums
        return Prediction(features.id, features.facts["answers"][int(scores.argmax())])

    def _features(self, example: Example, room: int) -> Features:
        if "entities" in example.fields:
            texts = list(dict.fromkeys(example.fields["entities"]))
            right = [i for i, entity in enumerate(texts) if entity in example.target]
        else:
            texts, right = list(example.fields["options"]), [example.target]
        spelled = [self.pvp.pattern.filtered("options", text) for text in texts]
        end = [] if self.end is None else [self.end]  # a target like all others
        words = [[*self.encoder.spelling.answer(text), *end] for text in spelled]
        rows = [self._row(example, tokens, room) for tokens in words]
        keys = list(range(len(texts))) if "options" in example.fields else texts
        facts = {"words": words, "right": right, "answers": keys}
        facts |= {"totals": [0.0] * len(texts), "sizes": [len(tokens) for tokens in words]}
        return Features(example.id, rows, [0], facts)

    def _row(self, example: Example, words: list[int], room: int) -> TokenRow:
        if self.backbone.architecture.fills_masks:
            return self.row(self.pieces(example), room, len(words))
        row = self.row(self.pieces(example), room, answer=len(words))
        at = row.reads[-1]
        reads = list(range(at, at + len(words)))
        if row.decoder is not None:
            return replace(row, reads=reads, decoder=[*row.decoder, *words[:-1]])
        return TokenRow([*row.ids[: at + 1], *words[:-1]], None, reads, row.softs)


def _sums(features: Features, logs: Tensor) -> Tensor:
    """Return the summed log-probabilities of each candidate's tokens."""
    sizes = [len(tokens) for tokens in features.facts["words"]]
    return torch.stack([part.sum() for part in torch.split(logs, sizes)])


@dataclass(frozen=True, kw_only=True)
class VerbalizerReading(Reading):
    """Words through the frozen language-model head.

    Args:
        pattern: a name in the task's `pvps`; null is the first that suits.
        among: of label words: `labels` is a softmax over label scores (PET, P-tuning);
            `vocabulary` is one over all words, in training and evaluation (PPT §2). A word of no
            label is a wrong prediction, and an encoder-decoder also learns to repeat the sentinel,
            with equal weight. `auto` is the vocabulary for an encoder-decoder, else the labels.
        closed: with `vocabulary`, whether an encoder-decoder also learns to end its answer with the
            next sentinel, with equal weight. PPT does so in pre-training only. `auto` is true if
            there are sentinels.
        objective: of texts of the example: `margin` is P-tuning's for COPA: the mean over wrong
            candidates of max(0, 1 + CE(right) - CE(wrong)), CE the mean over tokens, for each
            example. `batch_margin` is that of its released code (`OneRow`). `softmax` is
            cross-entropy over candidates, each scored by its mean. `as_scored` uses `scored`
            instead (GLM: the sum).
        scored: the `sum` of a candidate's log-probabilities (PET, P-tuning), which favours short
            ones, or their `mean`. A blank infiller's final <|endofpiece|> counts as a token.
        swapped: also train on each example with its options in reverse order (P-tuning and PET
            on COPA, whose pattern writes both out).
        random_masks: of a gap: train with 0 to 3 more masks, drawn once for each example as
            P-tuning's released code draws them.
        literal_sep: write "[SEP]" at the border `||` of a pattern and keep one segment, as
            P-tuning's released code does. By default the sides are two segments.
        sentinel: whether an encoder-decoder's text marks the gap. A pattern without a mask has no
            mark.
        shifted_label: of facts, with a left-to-right backbone: train at the position before the one
            that is read in evaluation. P-tuning's released code does so by mistake, and its last
            prompt vector learns nothing.
        released_query: of facts: lay out written templates as that code does
            (`ptrun.readout.label_words`): with a space before the first word, and left to right
            with one before the object. By default there is neither.
        class_weights: as in `HeadReading`; only of a task's labels.
        thresholds: of several labels a row: see `ptrun.readout.multilabel`.

    >>> from ptrun.readout.verbalizer import VerbalizerReading
    >>> VerbalizerReading(pattern="manual", among="vocabulary").changed
    {'pattern': 'manual', 'among': 'vocabulary'}
    """

    name = "verbalizer"
    answers = ("label", "labels", "option", "entity", "word")
    tunes_head = True
    idle = ("literal_sep",)

    pattern: str | None = None
    among: Among = "auto"
    closed: bool | Literal["auto"] = False
    objective: Objective = "margin"
    scored: Scored = "sum"
    swapped: bool = False
    random_masks: bool = False
    literal_sep: bool = False
    sentinel: bool = True
    shifted_label: bool = False
    released_query: bool = False
    class_weights: ClassWeights = "none"
    thresholds: Thresholds = "one"

    @property
    def whole(self) -> bool:
        """Whether the margin is one number for all rows of a step."""
        return self.objective == "batch_margin"

    def used(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> set[str]:
        """Return the keys that the kind of answer, the pattern and the family have."""
        pvp, family = self._pvp(backbone, task, soft), backbone.architecture
        if not family.writes_words:
            raise UserError(
                f"backbone={backbone.name} has no language-model head (its head detects replaced "
                "words); use readout=head or another backbone."
            )
        if task.fills_gap and not (family.fills_masks or family.has_blank):
            raise UserError(
                f"task={task.name} needs a backbone that fills masks, and {backbone.name} is "
                f"{backbone.family}; use readout=head."
            )
        if self.among == "vocabulary" and (pvp.rule == "mean" or pvp.pattern.masks > 1):
            raise UserError(
                f"readout.among=vocabulary reads one token, but pattern {pvp.name} reads several "
                "masks; type readout.among=labels, or name another readout.pattern."
            )
        has_border = any(isinstance(part, Border) for part in pvp.pattern.parts)
        without_effect = {
            "literal_sep": not has_border or family.has_blank,
            "sentinel": not (family.has_decoder and pvp.pattern.masks),
            "shifted_label": not family.left_to_right,
            "released_query": soft or family.writes_apart,
            "closed": not self._can_close(backbone),
            "class_weights": task.answer == "option",
            "swapped": task.answer != "option",
            # one row has no tokens after each answer
            "objective": self.whole and not (task.answer == "option" and family.fills_masks),
        }
        keys = self._kind(backbone, task, pvp).keys
        return {"pattern", *(key for key in keys if not without_effect.get(key))}

    def made(self, backbone: PretrainedBackbone, task: Task, *, soft: bool) -> Readout:
        """Return the read-out of the kind of answer."""
        pvp = self._pvp(backbone, task, soft)
        closed = self._can_close(backbone) if self.closed == "auto" else self.closed
        options = replace(self, among=self._among(backbone), closed=closed)
        if task.answer == "labels":
            options = replace(options, among="labels", closed=False)
        return self._kind(backbone, task, pvp)(backbone, task, pvp, options)

    def _kind(self, backbone: PretrainedBackbone, task: Task, pvp: PVP) -> type[Cloze]:
        """Return the class of read-out that gives the kind of answer."""
        if task.answer == "word":
            return FactWords
        if task.answer == "labels":
            return LabelsWords
        if pvp.verbalizer(1 if task.answer == "option" else 0) is not None:
            return LabelWords  # label words or option letters, not texts of the example
        if task.fills_gap:
            return Fill if backbone.architecture.fills_masks else Written
        return OneRow if self.whole else Candidates

    def _pvp(self, backbone: PretrainedBackbone, task: Task, soft: bool) -> PVP:
        """Return the pattern; without label words, the labels themselves are the words."""
        pvp = choose(task, backbone, soft=soft, name=self.pattern)
        if pvp.words is not None or not task.answer.startswith("label") or task.fills_gap:
            return pvp
        return replace(pvp, words={label: [label] for label in worded(task)})

    def _among(self, backbone: PretrainedBackbone) -> Among:
        auto: Among = "vocabulary" if backbone.architecture.has_decoder else "labels"
        return auto if self.among == "auto" else self.among

    def _can_close(self, backbone: PretrainedBackbone) -> bool:
        """Return whether a sentinel comes before the answer, so that one can end it."""
        marked = backbone.architecture.has_decoder and self.sentinel
        return marked and self._among(backbone) == "vocabulary"


_TAUGHT = "one_row"


class OneRow(Candidates):
    """Predicts as `Candidates` does; an example is trained in one row, that of its longest option.

    The tokens of the right option and of the wrong one are compared at the first masks of that row.
    The loss is max(0, 1 + CE(right) - CE(wrong)), each CE the mean over all tokens of the batch
    (P-tuning §2b, which has it from PET).

    >>> from ptrun.testing import read
    >>> from ptrun.types import Example
    >>> fields = {"premise": "It rained.", "question": "so", "options": ["I ran.", "I sat."]}
    >>> rows, margin = [Example("id", fields, 0)], "readout.objective=batch_margin"
    >>> method, batch, output = read("method=manual_prompt", "task=copa", margin, examples=rows)
    >>> len(method.readout.encode(method.readout.teaching(rows, 64), 64)[0].rows)
    1
    """

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the training examples, marked, followed by the swapped ones."""
        taught = super().teaching(examples, room)
        return [replace(e, fields={**e.fields, _TAUGHT: True}) for e in taught]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the margin of the batch times its number of examples, `[]`."""
        right: list[Tensor] = []
        wrong: list[Tensor] = []
        for features, logits in batch.pairs(word_logits(output)):
            for option, tokens in enumerate(features.facts["words"]):
                index = on_device(tokens, logits.device)
                losses = functional.cross_entropy(logits[: len(tokens)], index, reduction="none")
                (right if option in features.facts["right"] else wrong).append(losses)
        margin = 1 + torch.cat(right).mean() - torch.cat(wrong).mean()
        return margin.clamp(min=0) * len(batch.features)

    def _features(self, example: Example, room: int) -> Features:
        features = super()._features(example, room)
        if _TAUGHT not in example.fields:
            return features
        return replace(features, rows=[max(features.rows, key=lambda row: len(row.reads))])


_EXTRA = 1  # masks beyond the noun phrase's tokens
_DRAWN = "extra_masks"
_SEED = 42  # the released code's, in all its repetitions
RIGHT, WRONG = "same", "different"


class Fill(Cloze):
    """Learns the noun phrase's tokens at the masks; compares the words predicted there with it.

    Only examples with the right noun phrase are trained on. In evaluation, the mask with the most
    probable token is filled first, then the next. The prediction is `same` if all predicted words
    are in the noun phrase, or all its words among them (P-tuning §2b); so no words are `same` too.
    There is one mask more than tokens, with the padding token as its target.

    >>> from ptrun.testing import read
    >>> from ptrun.types import Example
    >>> fields = {"marked": "Ann saw *it*.", "span2_text": "it", "span1_text": "the boat"}
    >>> rows = [Example("id", fields, "same")]
    >>> method, batch, output = read("method=manual_prompt", "task=wsc", examples=rows)
    >>> output.logits.shape[0] == len(batch.targets)  # a mask a token, and one more
    True
    """

    teaches = True
    keys: ClassVar[Set[str]] = {"literal_sep", "random_masks"}
    options: VerbalizerReading

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples to train on, with their number of masks if it is random."""
        right = [example for example in examples if example.target == RIGHT]
        if not self.options.random_masks:
            return right
        dice = random.Random(_SEED)  # its first draws are for an evaluation on the same examples
        counts = [dice.randint(0, 3) for _ in range(2 * len(right))][len(right) :]
        pairs = zip(right, counts, strict=True)
        return [replace(e, fields={**e.fields, _DRAWN: count}) for e, count in pairs]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over the tokens of right noun phrases, `[]`."""
        logits = word_logits(output)
        learned = [bool(f.targets) for f in batch.features for row in f.rows for _ in row.reads]
        if not len(batch.targets):
            return 0 * logits.sum()
        places = on_device([place for place, keep in enumerate(learned) if keep], logits.device)
        return functional.cross_entropy(logits[places], batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Fill the surest mask of each row; return the prediction when no mask is left."""
        best = word_logits(output).softmax(dim=-1).max(dim=-1)
        shares, words = (batch.by_example(t.cpu()) for t in (best.values, best.indices))
        decoded: list[Prediction | Features] = []
        for features, row_shares, row_words in zip(batch.features, shares, words, strict=True):
            (row,), facts, place = features.rows, features.facts, int(row_shares.argmax())
            word = int(row_words[place])
            filled = {**facts["found"], str(row.reads[place]): word}
            if len(row.reads) > 1:
                rows, facts = [row.filled(place, word)], {**facts, "found": filled}
                decoded.append(replace(features, rows=rows, facts=facts))
            else:
                named = [filled[at] for at in sorted(filled, key=int)]
                decoded.append(Prediction(features.id, self.judged(named, facts["noun"])))
        return decoded

    def judged(self, named: list[int], noun: str) -> str:
        """Return whether the predicted tokens name the noun phrase, as a label."""
        tokenizer = self.backbone.tokenizer()
        words = _words(tokenizer.decode(named, skip_special_tokens=True))
        gold = _words(noun)
        return RIGHT if words <= gold or gold <= words else WRONG

    def _features(self, example: Example, room: int) -> Features:
        noun = example.fields["span1_text"]
        words = self.encoder.spelling.answer(noun)
        extra = example.fields.get(_DRAWN, _EXTRA)
        row = self.row(self.pieces(example), room, len(words) + extra)
        pad = self.backbone.tokenizer().pad_token_id or 0
        targets = [*words, *[pad] * extra] if example.target == RIGHT else []
        return Features(example.id, [row], targets, {"noun": noun, "found": {}})


def _words(text: str) -> set[str]:
    """Return the words of a text, letters alone."""
    return set(re.findall(r"[^\W\d_]+", text.lower()))


_LONGEST = 16  # tokens of an answer
_SHOWN = "shown"


class Written(Fill):
    """Learns to write the noun phrase and its end; predicts from what it writes.

    It is `Fill` without masks. GLM's released code compares candidates instead: nouns mined from
    the text, which were never published.

    >>> from ptrun.testing import read
    >>> from ptrun.types import Example
    >>> fields = {"marked": "Ann saw *it*.", "span2_text": "it", "span1_text": "the boat"}
    >>> rows, glm = [Example("id", fields, "same")], "backbone=pocket_glm"
    >>> method, batch, output = read("method=manual_prompt", "task=wsc", glm, examples=rows)
    >>> method.readout.judged(method.readout.encoder.spelling.answer("a boat"), "the boat")
    'different'
    """

    writes = True
    keys: ClassVar[Set[str]] = {"literal_sep"}
    write_every = 1
    longest = _LONGEST

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples to train on, marked: their rows show the answer."""
        right = super().teaching(examples, room)
        return [replace(e, fields={**e.fields, _SHOWN: True}) for e in right]

    @cached_property
    def decoding(self) -> Decoding:
        """How tokens are chosen: the likeliest, until the phrase ends."""
        assert self.end is not None
        return Decoding(max_new_tokens=_LONGEST, ends=(self.end,))

    def prompt(self, features: Features) -> Features:
        """Return the example; its rows have no answer."""
        return features

    def answer(self, prediction: Prediction, features: Features, tokens: list[int]) -> Prediction:
        """Return the prediction with the label of what is written."""
        phrase = [token for token in tokens if token != self.end]
        return replace(prediction, value=self.judged(phrase, features.facts["noun"]))

    def _features(self, example: Example, room: int) -> Features:
        noun = example.fields["span1_text"]
        row = self.row(self.pieces(example), room, answer=_LONGEST)
        assert row.decoder is not None and self.end is not None
        targets: list[int] = []
        if example.fields.get(_SHOWN):
            targets = [*self.encoder.spelling.answer(noun)[: _LONGEST - 1], self.end]
            decoder = [*row.decoder, *targets[:-1]]
            row = replace(row, decoder=decoder, reads=list(range(len(decoder))))
        return Features(example.id, [row], targets, {"noun": noun})
