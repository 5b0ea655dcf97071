"""The parts of pre-training, from a recipe: tokenizer, rows, model, initial weights, objective.

The initial word vectors are from counts, the positions from sinusoids. Neighbours (up to 4 words
away) give the kind of a word; words further away in the same document give its topic, such as
praise or blame. From random embeddings a model of this size stays on a plateau for most of the
training and never learns topics. T5 has no position vectors: its encoder starts with attention to
neighbours, its decoder with attention from a sentinel to its gap.
"""

import random
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ptrun.backbone import files
from ptrun.errors import UserError
from workshop.pretrain import objective as objectives
from workshop.pretrain import vocabulary
from workshop.pretrain.objective import infilling
from workshop.pretrain.recipe import Recipe
from workshop.pretrain.rows import Row, Stream, documents, flattened, mask_chances, rows
from workshop.pretrain.training import Pretraining
from workshop.pretrain.vocabulary import Marks
from workshop.random_model import check_keys

_TOKENIZERS = {
    "masked": vocabulary.wordpiece,
    "causal": vocabulary.byte_pairs,
    "denoising": vocabulary.unigram,
    "infilling": vocabulary.blanks,
}
_CLASSES = {  # the auto class of transformers with the head of the objective
    "masked": "AutoModelForMaskedLM",
    "replaced": "AutoModelForPreTraining",
    "causal": "AutoModelForCausalLM",
    "denoising": "AutoModelForSeq2SeqLM",
}
_SPLITS = ("train", "validation")
_OUTPUT_SCALE = 0.05
_FAR_SHARE = 0.3125  # of the numbers of a word at the start
_NEIGHBOUR, _SAME = 3.0, 5.0  # added to the initial attention scores
_WHOLE = 4096  # words up to which the decomposition is exact
_NEAR, _FAR = range(1, 5), range(5, 31)


@dataclass(frozen=True)
class Prepared:
    """A trainer, its rows, and the tokenizer for the output folder."""

    trainer: Pretraining
    tokenizer: Any
    train: Stream
    validation: Stream


def prepare(recipe: Recipe) -> Prepared:
    """Return the parts of a run, with the model on its device and the actual vocabulary size.

    Raises:
        UserError: the corpus or the generator is missing, or the configuration does not fit.
    """
    generator = _loaded("masked", recipe.generator, recipe) if recipe.generator else None
    tokenizer = _tokenizer(recipe)
    recipe = replace(recipe, vocabulary=len(tokenizer))
    marks = vocabulary.marks(tokenizer)
    encoder = tokenizer.backend_tokenizer
    packed = {s: rows(encoder, documents(recipe.corpus, s), recipe.length) for s in _SPLITS}
    for split in _SPLITS:
        if not packed[split]:
            raise UserError(f"corpus={recipe.corpus}: the {split} split holds no text.")
    model = _model(recipe, tokenizer)
    if recipe.initial:
        source = _loaded(recipe.objective, recipe.initial, recipe)
        same = type(source) is type(model)  # else its encoder alone
        _copy(*((source, model) if same else (source.base_model, model.base_model)))
    elif generator is not None:
        _copy(generator.base_model, model.base_model)
    else:
        start(model, packed["train"], marks.stop, recipe.start_scale)
    positions = positions_of(model, recipe)
    if recipe.length > positions:
        raise UserError(
            f"pretrain.length is {recipe.length}, but the model has {positions} positions; "
            f"use {positions} or less."
        )
    trainer = Pretraining(model.to(recipe.device), objective_of(recipe, generator), recipe)
    train = stream(packed["train"], recipe, marks, positions, recipe.evenness)
    validation = stream(packed["validation"], recipe, marks, positions, 0.0)
    return Prepared(trainer, tokenizer, train, validation)


def _tokenizer(recipe: Recipe) -> Any:
    """Return a tokenizer made from the corpus, or that of the model that it starts from."""
    if recipe.origin:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(_folder_of(recipe.origin))
    sentences = chain.from_iterable(documents(recipe.corpus, "train"))
    return _TOKENIZERS[recipe.objective](sentences, recipe.vocabulary)


def _folder_of(origin: str) -> Path:
    shipped = (files.SHIPPED / origin).is_dir()
    folder = files.locate(origin, None) if shipped else files.locate(None, origin)
    assert folder is not None
    return folder


def _loaded(objective: str, origin: str, recipe: Recipe) -> Any:
    """Return a frozen model with the objective's head; a head that its folder lacks is new."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # it reports such a head
    model = class_of(objective).from_pretrained(
        _folder_of(origin),
        dtype=torch.float32,
        attn_implementation="eager",
        use_safetensors=True,
    )
    return model.requires_grad_(False).eval().to(recipe.device)


def _model(recipe: Recipe, tokenizer: Any) -> Any:
    """Return an untrained model; eager attention is the fastest for a small one on a CPU."""
    sizes = files.read_config(_folder_of(recipe.initial)) if recipe.initial else {}
    sizes = {key: value for key, value in sizes.items() if key not in ("dtype", "torch_dtype")}
    content = {**sizes, "vocab_size": recipe.vocabulary, **_ids(tokenizer), **recipe.model}
    try:
        config = _config(content.pop("model_type", ""), content)
        check_keys(config, recipe.model)
        config._attn_implementation = "eager"
        kind = class_of(recipe.objective)
        model = kind(config) if issubclass(kind, nn.Module) else kind.from_config(config)
    except ValueError as error:
        raise UserError(f"pretrain.model: {str(error).splitlines()[0][:160]}") from error
    if recipe.objective == "denoising":  # T5 v1.1 does not tie its output matrix
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
        model.config.scale_decoder_outputs = False
    return model


def _ids(tokenizer: Any) -> dict[str, int | None]:
    """Return the special ids of a configuration; a blank infiller has its own start of answers."""
    ids = {f"{r}_token_id": getattr(tokenizer, f"{r}_token_id") for r in ("pad", "bos", "eos")}
    piece = vocabulary.marks(tokenizer).piece
    if piece is None:
        return ids
    return ids | {"bos_token_id": ids["eos_token_id"], "decoder_start_token_id": piece[0]}


def _config(kind: str, content: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    from ptrun.papers.models import BlockConfig

    is_block = kind == BlockConfig.model_type
    return BlockConfig(**content) if is_block else AutoConfig.for_model(kind, **content)


def class_of(objective: str) -> Any:
    """Return the class that loads a model with the objective's head."""
    import transformers

    from ptrun.papers.models import BlockLM

    return BlockLM if objective == "infilling" else getattr(transformers, _CLASSES[objective])


@torch.no_grad()
def _copy(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of a model into one with the same names, or with some of them."""
    values = dict(source.named_parameters())
    for name, parameter in target.named_parameters():
        parameter.copy_(values[name])


def positions_of(model: Any, recipe: Recipe) -> int:
    """Return the number of positions; T5 has no position table, so its rows are never shifted."""
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) else recipe.length


def objective_of(recipe: Recipe, generator: Any) -> objectives.Objective:
    """Return the objective of a recipe; `replaced` needs the generator."""
    if recipe.objective == "replaced":
        return objectives.replaced(generator, recipe.unseen)
    if recipe.objective == "denoising":
        return objectives.denoising(recipe.joined)
    if recipe.objective == "infilling":
        return infilling(recipe.joined)
    return {"masked": objectives.masked, "causal": objectives.causal}[recipe.objective]


def stream(
    packed: list[Row], recipe: Recipe, marks: Marks, positions: int, evenness: float
) -> Stream:
    """Return the batches of a recipe, the same in every process."""
    dice = torch.Generator().manual_seed(recipe.seed)
    chances = mask_chances(packed, marks, recipe, evenness)
    return Stream(packed, recipe, marks, positions, chances, random.Random(recipe.seed), dice)


def start(model: Any, packed: list[Row], stop: int, scale: float) -> None:
    """Set word embeddings, learned positions and an untied output matrix."""
    words = model.get_input_embeddings().weight
    count, width = words.shape
    far_width = round(width * _FAR_SHARE)
    near, seen = count_vectors(packed, stop, _NEAR, count, width - far_width)
    far, _ = count_vectors(packed, stop, _FAR, count, far_width)
    vectors = torch.cat((near, far), 1)
    output = model.get_output_embeddings()
    with torch.no_grad():
        words[seen] = vectors[seen] * scale
        if output is not None and output.weight is not words:
            output.weight.normal_(std=_OUTPUT_SCALE)
            output.weight[seen] = vectors[seen] * _OUTPUT_SCALE
        for table in _positions(model):
            table.copy_(sinusoids(*table.shape) * scale)
        if model.config.is_encoder_decoder:
            look_around(model.encoder.block[0].layer[0].SelfAttention)
            for block in model.decoder.block:
                look_up(block.layer[1].EncDecAttention)


def look_around(attention: Any) -> None:
    """Let each head of T5's encoder start with attention to one neighbour, left or right."""
    table, far = attention.relative_attention_bias.weight, attention.relative_attention_num_buckets
    for head in range(table.shape[1]):
        distance, right = head // 2 + 1, head % 2
        table[distance + right * far // 2, head] += _NEIGHBOUR


def look_up(attention: Any) -> None:
    """Let T5's cross-attention start with attention to the same token in the encoder.

    So a sentinel finds its gap. With equal query and key matrices, a token has a score of about the
    head size with itself; it is scaled to `_SAME`.
    """
    attention.q.weight.copy_(attention.k.weight * (_SAME / attention.key_value_proj_dim))


def _positions(model: nn.Module) -> list[Tensor]:
    """Return the table of learned absolute positions, if there is one."""
    names = ("position_embeddings.weight", "wpe.weight")
    return [p for name, p in model.named_parameters() if name.endswith(names)]


def sinusoids(count: int, width: int) -> Tensor:
    """Return position vectors `[count, width]` of sines and cosines."""
    rates = 10_000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(count)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


def count_vectors(
    packed: list[Row], stop: int, distances: range, words: int, width: int
) -> tuple[Tensor, Tensor]:
    """Return word vectors `[words, width]` of deviation 1 from the SVD of log co-occurrence.

    Words co-occur at these distances within a row; nearer ones count more. The second tensor marks
    the words that occur at all `[words]`.
    """
    flat = flattened(packed, stop)
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
    if words > _WHOLE:
        left, values, _ = torch.svd_lowrank(association, q=width + 16, niter=4)
    else:
        left, values, _ = torch.linalg.svd(association)
    vectors = left[:, :width] * values[:width].sqrt()
    return vectors / vectors.std(), total > 0
