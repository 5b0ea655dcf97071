"""What an encoder-decoder reads around a text and before its answer: start tokens and languages.

mBART, NLLB, M2M100 and PLBart read the token of a language beside each text, where their tokenizer
puts it. mBART reads `X </s> en_XX` and writes after `ro_RO`; NLLB reads `eng_Latn X </s>` and
writes after `</s> ron_Latn`. What is learned are transformers' labels.
"""

from difflib import SequenceMatcher
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError, names
from ptrun.pattern.spelling import frame
from ptrun.task.dataset import Task


def tokenizer_of(backbone: PretrainedBackbone, task: Task, *, words: bool = False) -> Any:
    """Return the tokenizer, which lays out texts in the languages of the task, or refuse them."""
    languages = backbone.languages
    source = (task.source_language or "").strip("_")
    target = (task.target_language or "").strip("_")
    for key, name in (("source", source), ("target", target)):
        if name in languages or not (languages or backbone.reads_languages or name):
            continue
        advice = "names no languages. Leave the key out, or use the tokenizer of its source."
        if languages:
            nearest = sorted(languages, key=lambda n: -SequenceMatcher(None, name, n).ratio())
            advice = f"reads task.source_language and task.target_language. Type {names(nearest)}."
        raise UserError(f"task.{key}_language={name or 'null'}: backbone={backbone.name} {advice}")
    return backbone.tokenizer(words=words, languages=(source, target) if languages else None)


def decoder_start(backbone: PretrainedBackbone) -> int:
    """Return the first token of the decoder, 0 for T5, or of the text written in a blank."""
    start = backbone.config.get("decoder_start_token_id")
    if start is None and backbone.architecture.has_blank:
        raise UserError(
            f"backbone={backbone.name}: config.json has no decoder_start_token_id; add it."
        )
    return int(start or 0)


def answer_frame(backbone: PretrainedBackbone, task: Task) -> tuple[list[int], list[int]]:
    """Return what the decoder reads before an answer, and what is learned after its end.

    All but the first of the tokens before an answer are learned too.
    """
    tokenizer = tokenizer_of(backbone, task)
    if task.target_language is None:
        return [decoder_start(backbone)], []
    before, after = frame(tokenizer, 1, answers=True).ids
    begin = [after[-1] if backbone.turns_labels else decoder_start(backbone), *before]
    if backbone.languages[task.target_language.strip("_")] not in begin:
        raise UserError(
            f"backbone={backbone.name}: its decoder reads no language. Set legacy_behaviour to "
            "false in tokenizer_config.json."
        )
    return begin, after[1:]
