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
    """Return the tokenizer, which lays out texts in the languages of the task.

    Raises:
        UserError: the tokenizer names languages and the task does not, or the other way round.
    """
    languages = backbone.languages
    typed = {"source": task.source_language, "target": task.target_language}
    for key, language in typed.items():
        if languages and (language is None or language.strip("_") not in languages):
            text = language or ""
            nearest = sorted(languages, key=lambda n: -SequenceMatcher(None, text, n).ratio())
            raise UserError(
                f"task.{key}_language={language or 'null'}: backbone={backbone.name} reads the "
                "token of a language beside each text.\nType task.source_language=LANGUAGE "
                f"task.target_language=LANGUAGE. Languages: {names(nearest)}."
            )
        if not languages and (language is not None or backbone.reads_languages):
            raise UserError(
                f"task.{key}_language={language or 'null'}: the tokenizer of backbone="
                f"{backbone.name} names no languages. Leave the key out, or use an mBART, NLLB or "
                "M2M100 with the tokenizer of its source."
            )
    source, target = (str(language).strip("_") for language in typed.values())
    return backbone.tokenizer(words=words, languages=(source, target) if languages else None)


def decoder_start(backbone: PretrainedBackbone) -> int:
    """Return the first token of the decoder, 0 for T5, or of the text written in a blank."""
    start = backbone.config.get("decoder_start_token_id")
    if start is None and backbone.architecture.has_blank:
        raise UserError(
            f"backbone={backbone.name}: its config.json has no decoder_start_token_id; add it: the "
            "id of <|startofpiece|>, after which it writes."
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
            f"backbone={backbone.name}: its decoder does not read the language that its tokenizer "
            "writes last. Set legacy_behaviour to false in tokenizer_config.json."
        )
    return begin, after[1:]
