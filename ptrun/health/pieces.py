"""Finds label words that a vocabulary cuts into pieces, of which only the first is read."""

from collections.abc import Sequence

from ptrun.prompt.spelling import Spelling
from ptrun.prompt.verbalizer import Verbalizer
from ptrun.readout.base import Readout
from ptrun.readout.class_tree import ClassTree
from ptrun.readout.class_words import ClassWords
from ptrun.readout.label_words import LabelWords
from ptrun.task.base import Task

_SHOWN = 6


def words_in_pieces(readout: Readout, task: Task) -> str | None:
    """Return a warning that names the label words in pieces, or None if all are whole.

    The first word of a name such as `science and technology` counts. Words that are read whole
    (`rule: mean`), and words that are only written beside a letter, are left out.
    """
    if not isinstance(readout, LabelWords | ClassWords | ClassTree):
        return None
    verbalizer = readout.pvp.verbalizer() if readout.pvp.words else None
    if verbalizer is None or (isinstance(readout, LabelWords) and verbalizer.rule != "first"):
        return None
    cut = _cut(verbalizer, Spelling(readout.backbone.tokenizer()))
    if not cut:
        return None
    label, *_ = cut[0]
    where = f"change it in {task.pvps_from}"
    if task.pvps_from is None:
        where = f"type task.pvps.{readout.pvp.name}.words.{label}=[WORD]"
    shown = ", ".join(f"{word} ({' '.join(pieces)})" for _, word, pieces in cut[:_SHOWN])
    more = f" and {len(cut) - _SHOWN} more" if len(cut) > _SHOWN else ""
    return (
        f"the vocabulary of backbone={readout.backbone.name} cuts label words into pieces, and "
        f"only the first piece is read: {shown}{more}. To use a whole word, {where}"
    )


def _cut(verbalizer: Verbalizer, spelling: Spelling) -> list[tuple[str, str, Sequence[str]]]:
    """Return label, word and pieces of each word in pieces."""
    parts = [
        (label, word, spelling.answer(word.split()[0], glued=verbalizer.glued))
        for label, words in verbalizer.words.items()
        for word in words
    ]
    return [(label, word, spelling.tokens(ids)) for label, word, ids in parts if len(ids) > 1]
