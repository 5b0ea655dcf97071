"""The parts of pre-training, built from a recipe: tokenizer, rows, model, objective."""

import random
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ptrun.backbone import files
from ptrun.config.suggest import did_you_mean
from ptrun.errors import UserError
from ptrun.pretrain import objective as objectives
from ptrun.pretrain import vocabulary
from ptrun.pretrain.corpus import documents
from ptrun.pretrain.infilling import infilling
from ptrun.pretrain.recipe import Recipe
from ptrun.pretrain.rows import Row, Stream, mask_chances, rows
from ptrun.pretrain.start import start
from ptrun.pretrain.training import Trainer
from ptrun.pretrain.vocabulary import Marks

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


@dataclass(frozen=True)
class Prepared:
    """A trainer, its rows, and the tokenizer for the output folder."""

    trainer: Trainer
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
        _copy(_loaded(recipe.objective, recipe.initial, recipe), model)
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
    trainer = Trainer(model.to(recipe.device), objective_of(recipe, generator), recipe)
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

    from ptrun.backbone.blocklm import BlockConfig

    is_block = kind == BlockConfig.model_type
    return BlockConfig(**content) if is_block else AutoConfig.for_model(kind, **content)


def class_of(objective: str) -> Any:
    """Return the class that loads a model with the objective's head."""
    import transformers

    from ptrun.backbone.blocklm import BlockLM

    return BlockLM if objective == "infilling" else getattr(transformers, _CLASSES[objective])


def check_keys(config: Any, overrides: dict[str, Any]) -> None:
    """Raise a UserError for unknown keys, which the library would store without using them."""
    known = {*type(config)().to_dict(), *config.attribute_map, "decoder_start_token_id"}
    for key in overrides.keys() - known - {"model_type"}:
        raise UserError(f"pretrain.model.{key}: unknown{did_you_mean(key, known)}")


@torch.no_grad()
def _copy(source: nn.Module, target: nn.Module) -> None:
    """Copy the weights of a model into one of the same names."""
    parameters = dict(target.named_parameters())
    for name, value in source.named_parameters():
        parameters[name].copy_(value)


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
