"""Everything a pre-training run needs, made from its recipe: tokenizer, rows, model, objective."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
_CLASSES = {  # the automatic class of transformers that has the objective's head
    "masked": "AutoModelForMaskedLM",
    "replaced": "AutoModelForPreTraining",
    "causal": "AutoModelForCausalLM",
    "denoising": "AutoModelForSeq2SeqLM",
}


@dataclass(frozen=True)
class Prepared:
    """A trainer, what it reads, and the tokenizer that goes into the folder."""

    trainer: Trainer
    tokenizer: Any
    train: Stream
    validation: Stream


def prepare(recipe: Recipe) -> Prepared:
    """Return all parts of a run, the model on its device, the vocabulary's real size filled in.

    Raises:
        UserError: the corpus or the generator is not there, or the configuration does not fit.
    """
    generator = _generator(recipe)
    tokenizer = _tokenizer(recipe)
    recipe = replace(recipe, vocabulary=len(tokenizer))
    marks = vocabulary.marks(tokenizer)
    encoder = tokenizer.backend_tokenizer
    packed = {s: rows(encoder, documents(recipe.corpus, s), recipe.length) for s in _SPLITS}
    for split, found in packed.items():
        if not found:
            raise UserError(f"corpus={recipe.corpus}: {split} holds no text.")
    model = _model(recipe, tokenizer)
    if generator is None:
        start(model, packed["train"], marks.stop, recipe.start_scale)
    else:
        _start_from(model, generator)
    positions = positions_of(model, recipe)
    if recipe.length > positions:
        raise UserError(
            f"pretrain.length is {recipe.length}, but the model has {positions} positions."
        )
    trainer = Trainer(model.to(recipe.device), objective_of(recipe, generator), recipe)
    made = [
        stream(packed[s], recipe, marks, positions, e)
        for s, e in zip(_SPLITS, (recipe.evenness, 0.0), strict=True)
    ]
    return Prepared(trainer, tokenizer, *made)


_SPLITS = ("train", "validation")


def _tokenizer(recipe: Recipe) -> Any:
    """Return a tokenizer made from the corpus, or the generator's own."""
    if recipe.generator is not None:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(_generator_folder(recipe))
    return _TOKENIZERS[recipe.objective](_sentences(recipe.corpus), recipe.vocabulary)


def _sentences(corpus: str) -> Iterator[str]:
    return (sentence for document in documents(corpus, "train") for sentence in document)


def _generator_folder(recipe: Recipe) -> Path:
    shipped = (files.SHIPPED / str(recipe.generator)).is_dir()
    folder = (
        files.locate(recipe.generator, None) if shipped else files.locate(None, recipe.generator)
    )
    assert folder is not None
    return folder


def _generator(recipe: Recipe) -> Any:
    """Return the frozen masked model of `replaced`, else None."""
    from transformers import AutoModelForMaskedLM

    if recipe.generator is None:
        return None
    folder = _generator_folder(recipe)
    made = AutoModelForMaskedLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", use_safetensors=True
    )
    return made.requires_grad_(False).eval().to(recipe.device)


def _model(recipe: Recipe, tokenizer: Any) -> Any:
    """Return an untrained model; plain attention is the fastest for so small a one on a CPU."""
    content = {"vocab_size": recipe.vocabulary, **_ids(tokenizer), **recipe.model}
    try:
        config = _config(content.pop("model_type", ""), content)
        check_keys(config, recipe.model)
        config._attn_implementation = "eager"
        made = class_of(recipe.objective)
        model = made(config) if issubclass(made, nn.Module) else made.from_config(config)
    except ValueError as error:
        raise UserError(f"pretrain.model: {str(error).splitlines()[0][:160]}") from error
    if recipe.objective == "denoising":  # v1.1 has an output matrix of its own
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
        model.config.scale_decoder_outputs = False
    return model


def _ids(tokenizer: Any) -> dict[str, int | None]:
    """Return the ids that a configuration names; a blank infiller's answer begins with its own."""
    ids = {f"{r}_token_id": getattr(tokenizer, f"{r}_token_id") for r in ("pad", "bos", "eos")}
    piece = vocabulary.marks(tokenizer).piece
    if piece is None:
        return ids
    return ids | {"bos_token_id": ids["eos_token_id"], "decoder_start_token_id": piece[0]}


def _config(kind: str, content: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    from ptrun.backbone.blocklm import BlockConfig

    own = kind == BlockConfig.model_type
    return BlockConfig(**content) if own else AutoConfig.for_model(kind, **content)


def class_of(objective: str) -> Any:
    """Return the class that loads a model with the objective's head."""
    import transformers

    from ptrun.backbone.blocklm import BlockLM

    return BlockLM if objective == "infilling" else getattr(transformers, _CLASSES[objective])


def check_keys(config: Any, given: dict[str, Any]) -> None:
    """Refuse keys that the library would keep and not read."""
    known = {*type(config)().to_dict(), *config.attribute_map, "decoder_start_token_id"}
    for key in given.keys() - known - {"model_type"}:
        raise UserError(f"pretrain.model.{key}: unknown{did_you_mean(key, known)}")


def _start_from(model: Any, generator: Any) -> None:
    """Give the discriminator's encoder the generator's weights; they have the same names."""
    own = dict(model.base_model.named_parameters())
    with torch.no_grad():
        for name, value in generator.base_model.named_parameters():
            own[name].copy_(value)


def positions_of(model: Any, recipe: Recipe) -> int:
    """Return how many positions can be numbered; T5 numbers none, so its rows never move."""
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) else recipe.length


def objective_of(recipe: Recipe, generator: Any) -> objectives.Objective:
    """Return what a recipe trains for; `replaced` draws from the generator."""
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
    """Return the batches of a recipe, always the same ones."""
    dice = torch.Generator().manual_seed(recipe.seed)
    chances = mask_chances(packed, marks, recipe, evenness)
    return Stream(packed, recipe, marks, positions, chances, random.Random(recipe.seed), dice)
