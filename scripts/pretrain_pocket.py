"""Pre-train a pocket backbone on the corpus of the pocket world and write its folder.

MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 python scripts/pretrain_pocket.py pocket_bert

The number of steps is fixed, so a rerun on the same kind of machine gives the loss in result.json
(to 0.02; kernels differ between processors). The environment only saves time.
"""

import argparse
import csv
import json
import platform
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path

import tokenizers
import torch
import transformers
from torch import Tensor, nn

from ptrun.pocket.corpus import documents
from ptrun.pocket.tasks import VERSION
from ptrun.pocket.vocabulary import SPECIALS, vocabulary

PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))
MODELS = Path(__file__).parents[1] / "ptrun" / "pocket" / "models"
IGNORED = -100
POSITIONS = 256
Row = list[list[int]]
START_SCALE = 0.05
FAR_WIDTH = 40  # of the 128 numbers of a word at the start


@dataclass(frozen=True)
class Plan:
    """How long and how to train; batch and length in tokens, rates per step."""

    seed: int = 0
    steps: int = 5000
    batch: int = 4096
    length: int = 128
    rate: float = 1.3e-3
    warmup: float = 0.06
    decay: float = 0.01
    masked: float = 0.15
    evenness: float = 0.35
    answer_length: int = 26
    answer_batch: int = 2048
    vocabulary: int = 2800
    log_every: int = 100


def bert(words: int) -> transformers.PreTrainedModel:
    """Return a BERT of 1.1 M parameters, without dropout: it is too small to learn by heart."""
    config = transformers.BertConfig(
        vocab_size=words,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=PAD,
    )
    config._attn_implementation = "eager"
    return transformers.BertForMaskedLM(config)


@dataclass(frozen=True)
class Shape:
    """What differs between model families: how to build one, and its loss on a batch of rows."""

    build: Callable[[int], transformers.PreTrainedModel]
    loss: Callable[..., Tensor]


def masked_loss(model: nn.Module, batch: "Batch") -> tuple[Tensor, Tensor]:
    """Return the mean loss and the top-1 accuracy over the masked positions of a batch."""
    hidden = model.bert(
        input_ids=batch.ids,
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        position_ids=batch.positions,
    ).last_hidden_state
    chosen = batch.labels != IGNORED
    logits = model.cls(hidden[chosen])
    labels = batch.labels[chosen]
    right = (logits.argmax(-1) == labels).float().mean()
    return nn.functional.cross_entropy(logits, labels), right


SHAPES = {"pocket_bert": Shape(bert, masked_loss)}


def tokenizer(entries: list[str]) -> tokenizers.Tokenizer:
    """Return a cased BERT tokenizer over a vocabulary; transformers takes words of 100 letters."""
    pieces = tokenizers.models.WordPiece(
        {word: i for i, word in enumerate(entries)},
        unk_token="[UNK]",
        max_input_chars_per_word=10_000,
    )
    made = tokenizers.Tokenizer(pieces)
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    made.decoder = tokenizers.decoders.WordPiece()
    made.add_special_tokens(list(SPECIALS))
    return made


def rows(encoder: tokenizers.Tokenizer, split: str, length: int) -> list[Row]:
    """Return one row for each document: its sentences, as token ids.

    A document of more than `length` tokens goes on in another row. Rows stay short so that a
    verdict sees its own review only; packed rows hid what belongs together from so small a model.
    """
    found: list[Row] = []
    for document in documents(split):
        found.append([])
        for coded in encoder.encode_batch(document, add_special_tokens=False):
            if sum(map(len, found[-1])) + len(coded.ids) + 3 > length:
                found.append([])
            found[-1].append(coded.ids[: length - 3])
    return found


@dataclass(frozen=True)
class Batch:
    """Rows of a step, all `[B, T]`: ids with masks in them, what to attend to, and the answers."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    positions: Tensor
    labels: Tensor


def flattened(packed: list[Row]) -> Tensor:
    """Return all tokens of all rows, [SEP] after each row."""
    return torch.tensor([t for row in packed for t in (*chain.from_iterable(row), SEP)])


def mask_chances(packed: list[Row], plan: Plan, evenness: float) -> Tensor:
    """Return the chance `[words]` of each entry to be masked: 15 % of all, rare words more often.

    Templates make function words easy; what an opinion or a name means is in the rarer words.
    """
    counts = torch.bincount(flattened(packed), minlength=plan.vocabulary)
    counts[: len(SPECIALS)] = 0
    weights = counts.clamp(min=1) ** -evenness
    share = (counts * weights).sum() / counts.sum()
    chances = (weights / share * plan.masked).clamp(max=0.5)
    chances[: len(SPECIALS)] = 0.0
    return chances


@dataclass(frozen=True)
class Stream:
    """Endless batches from rows, with the two sources of chance that decide them."""

    rows: list[Row]
    plan: Plan
    chances: Tensor
    rng: random.Random
    dice: torch.Generator

    def batches(self, answers: bool = False) -> Iterator[Batch]:
        """Yield batches of rows of like length, every row once before any comes again.

        Batches of `answers` hold short rows, and hide words of their last sentences only.
        """
        plan = self.plan
        longest = plan.answer_length if answers else plan.length
        budget = plan.answer_batch if answers else plan.batch
        sizes = [sum(map(len, row)) + 3 for row in self.rows]
        short = [i for i, size in enumerate(sizes) if size <= longest]
        while True:
            order = sorted(short, key=lambda i: (sizes[i], self.rng.random()))
            groups: list[list[Row]] = [[]]
            for i in order:
                if (len(groups[-1]) + 1) * sizes[i] > budget:
                    groups.append([])
                groups[-1].append(self.rows[i])
            self.rng.shuffle(groups)
            yield from (self.batch(group, answers) for group in groups)

    def batch(self, chosen: list[Row], answers: bool) -> Batch:
        """Return a masked batch; every second row starts at a random position."""
        made = [laid_out(row, answers, self.rng) for row in chosen]
        width = max(len(row.ids) for row in made)
        ids = torch.tensor([row.ids + [PAD] * (width - len(row.ids)) for row in made])
        types = torch.tensor([row.types + [0] * (width - len(row.ids)) for row in made])
        focus = torch.tensor([row.focus + [0.0] * (width - len(row.ids)) for row in made])
        shifts = [self.rng.randint(0, POSITIONS - width) * self.rng.randint(0, 1) for _ in made]
        positions = torch.arange(width) + torch.tensor(shifts)[:, None]
        masked, labels = mask_tokens(ids, self.chances, focus, self.dice)
        return Batch(masked, (ids != PAD).long(), types, positions, labels)


def stream(packed: list[Row], plan: Plan, evenness: float) -> Stream:
    """Return the batches of a plan, always the same ones."""
    dice = torch.Generator().manual_seed(plan.seed)
    return Stream(
        packed, plan, mask_chances(packed, plan, evenness), random.Random(plan.seed), dice
    )


@dataclass
class Laid:
    """A row as the model reads it: ids, token types, and how much likelier each is to be masked."""

    ids: list[int]
    types: list[int]
    focus: list[float]


def laid_out(row: Row, answers: bool, rng: random.Random) -> Laid:
    """Return a row with [CLS] and [SEP]; half of the rows are cut in two between two sentences.

    For `answers` only the last sentence is masked; else, in half of the rows, one sentence is
    masked more and the others less. What is hidden must then be read from other sentences.
    """
    cut = rng.randrange(1, len(row)) if len(row) > 1 and rng.random() < 0.5 else len(row)
    focused = rng.randrange(len(row)) if len(row) > 1 and rng.random() < 0.5 else None
    made = Laid([CLS], [0], [0.0])
    for i, sentence in enumerate(row):
        weight = 1.0 if focused is None else 2.5 if i == focused else 0.5
        if answers:
            weight = 2.5 if i == len(row) - 1 else 0.0
        end = [SEP] if i + 1 in (cut, len(row)) else []
        made.ids += sentence + end
        made.types += [int(i >= cut)] * len(sentence + end)
        made.focus += [weight] * len(sentence + end)
    return made


def mask_tokens(
    ids: Tensor, chances: Tensor, focus: Tensor, dice: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Choose tokens by their chances as labels; show 80 % as [MASK], 10 % as another token."""
    chosen = torch.rand(ids.shape, generator=dice) < chances[ids] * focus
    fate = torch.rand(ids.shape, generator=dice)
    other = torch.randint(len(SPECIALS), len(chances), ids.shape, generator=dice)
    shown = torch.where(chosen & (fate < 0.8), MASK, ids)
    shown = torch.where(chosen & (fate > 0.9), other, shown)
    return shown, torch.where(chosen, ids, IGNORED)


def start(model: nn.Module, packed: list[Row]) -> None:
    """Set word embeddings from counts, position embeddings to sinusoids.

    Neighbours (up to 4 words away) tell what kind of word it is; words further off in the same
    document tell what it speaks of, such as praise or blame. From random embeddings a model of
    this size sits on a plateau for most of its training and never learns the second.
    """
    words = model.get_input_embeddings().weight
    count, width = words.shape
    near, seen = count_vectors(packed, range(1, 5), count, width - FAR_WIDTH)
    far, _ = count_vectors(packed, range(5, 31), count, FAR_WIDTH)
    positions = model.bert.embeddings.position_embeddings.weight
    with torch.no_grad():
        words[seen] = torch.cat((near, far), 1)[seen] * START_SCALE
        positions.copy_(sinusoids(*positions.shape) * START_SCALE)


def sinusoids(count: int, width: int) -> Tensor:
    """Return position vectors `[count, width]` of sines and cosines."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def count_vectors(
    packed: list[Row], distances: range, words: int, width: int
) -> tuple[Tensor, Tensor]:
    """Return word vectors `[words, width]` of deviation 1 from the SVD of log co-occurrence.

    Words count as seen together at these distances within a row; nearer ones count more. The
    second answer says which words occur at all `[words]`.
    """
    flat = flattened(packed)
    row = torch.repeat_interleave(torch.tensor([sum(map(len, r)) + 1 for r in packed]))
    counts = torch.zeros(words * words)
    for distance in distances:
        same = row[:-distance] == row[distance:]
        pair = (flat[:-distance] * words + flat[distance:])[same]
        counts += torch.bincount(pair, minlength=words * words) / distance
    counts = counts.view(words, words)
    counts = counts + counts.T
    total = counts.sum(0)
    expected = total[None] * total[:, None] / total.sum()
    association = torch.log((counts + 1e-9) / (expected + 1e-9)).clamp(min=0)
    left, values, _ = torch.linalg.svd(association)
    vectors = left[:, :width] * values[:width].sqrt()
    return vectors / vectors.std(), total > 0


def schedule(step: int, plan: Plan) -> float:
    """Return the share of the peak rate: a linear rise, then a linear fall to zero."""
    rise = plan.warmup * plan.steps
    return min((step + 1) / rise, (plan.steps - step) / (plan.steps - rise))


def alternate(*sources: Iterator[Batch]) -> Iterator[Batch]:
    """Yield from the sources in turn: verdicts are rare in text, but meaning is learned there."""
    return chain.from_iterable(zip(*sources, strict=True))


def train(shape: Shape, model: nn.Module, packed: list[Row], plan: Plan) -> list[dict]:
    """Train in place and return the log: step, loss and accuracy since the last entry, seconds."""
    source = stream(packed, plan, plan.evenness)
    batches = alternate(source.batches(answers=True), source.batches())
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        groups, lr=plan.rate, betas=(0.9, 0.98), weight_decay=plan.decay, fused=True
    )
    log, losses, hits, began = [], 0.0, 0.0, time.perf_counter()
    model.train()
    for step, made in zip(range(plan.steps), batches, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate * schedule(step, plan)
        with torch.autocast("cpu", torch.bfloat16):
            loss, right = shape.loss(model, made)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses, hits = losses + loss.item(), hits + right.item()
        if (step + 1) % plan.log_every == 0:
            means = losses / plan.log_every, hits / plan.log_every
            log.append(entry(step + 1, *means, time.perf_counter() - began))
            losses, hits = 0.0, 0.0
    return log


def entry(step: int, loss: float, top1: float, seconds: float) -> dict[str, float]:
    """Return one line of the training log, and show it."""
    line = {
        "step": step,
        "loss": round(loss, 4),
        "top1": round(top1, 4),
        "seconds": round(seconds, 1),
    }
    print(line, flush=True)
    return line


@torch.no_grad()
def evaluate(shape: Shape, model: nn.Module, packed: list[Row], plan: Plan) -> dict:
    """Return loss and top-1 accuracy on held-out rows, and what always guessing [.] would get."""
    model.eval()
    totals, answers = torch.zeros(2), []
    count = sum(sum(map(len, row)) for row in packed) // plan.batch
    for made in islice(stream(packed, plan, evenness=0.0).batches(), count):
        totals += torch.stack(shape.loss(model, made))
        answers.append(made.labels[made.labels != IGNORED])
    every = torch.cat(answers)
    unigram = every.bincount().max().item() / len(every)
    loss, top1 = (totals / count).tolist()
    return {"loss": round(loss, 4), "top1": round(top1, 4), "unigram_top1": round(unigram, 4)}


def save(name: str, model: nn.Module, encoder: tokenizers.Tokenizer, result: dict) -> None:
    """Write the model's folder: config, half-precision weights, tokenizer, figures, loss curve."""
    folder = MODELS / name
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    made = transformers.BertTokenizerFast(
        tokenizer_object=encoder,
        do_lower_case=False,
        strip_accents=True,
        model_max_length=POSITIONS,
    )
    made.save_pretrained(folder)
    with (folder / "train_log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(result["log"][0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(result.pop("log"))
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")


def main() -> None:
    """Read the command line, train, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=list(SHAPES))
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--seed", type=int, default=Plan.seed)
    given = parser.parse_args()
    run(given.model, Plan(seed=given.seed, steps=given.steps))


def run(name: str, plan: Plan) -> None:
    """Pre-train one model by a plan and save it."""
    began = time.perf_counter()
    torch.manual_seed(plan.seed)
    sentences = [sentence for document in documents("train") for sentence in document]
    encoder = tokenizer(vocabulary(sentences, plan.vocabulary))
    plan = replace(plan, vocabulary=encoder.get_vocab_size())
    packed = {split: rows(encoder, split, plan.length) for split in ("train", "validation")}
    model = SHAPES[name].build(plan.vocabulary)
    start(model, packed["train"])
    print(f"prepared in {time.perf_counter() - began:.0f} s", flush=True)
    log = train(SHAPES[name], model, packed["train"], plan)
    result = {
        "model": name,
        "world_version": VERSION,
        "plan": asdict(plan),
        "parameters": sum(p.numel() for p in model.parameters()),
        "corpus_tokens": len(flattened(packed["train"])),
        "tokens_seen": plan.steps * (plan.batch + plan.answer_batch) // 2,
        "train": log[-1],
        "validation": evaluate(SHAPES[name], model, packed["validation"], plan),
        "seconds": round(time.perf_counter() - began, 1),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "log": log,
    }
    save(name, model, encoder, result)
    print({key: result[key] for key in ("validation", "seconds")})


if __name__ == "__main__":
    main()
