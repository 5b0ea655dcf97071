"""Words with tags in the columns of the user's table: the kinds `tagging` and `tags`."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ptrun.errors import UserError, names
from ptrun.metrics import entity_scores, word_scores
from ptrun.task.dataset import Scores, is_texts
from ptrun.task.label import is_number, listed, normal, skipping
from ptrun.task.source import HubTable, Row
from ptrun.task.table import Table
from ptrun.task.tag_schemes import iob2, marks_spans

_SHOWN, _FEW = 5, 20  # tags of a command; those that need no rows


class Words:
    """How words and tags of a row are read, and predicted tags scored.

    Args:
        tokens, tags: the columns; a cell is a list, in a CSV as JSON, Python or numpy writes it.
        names: the tags in the order of their numbers.
        kind: `tagging` if tags of any scheme mark spans, which are read as IOB2; else `tags`.
    """

    def __init__(self, tokens: str, tags: str, names: Sequence[str], kind: str = "tags"):
        self.tokens, self.tags, self.spans = tokens, tags, kind == "tagging"
        self._names = dict(enumerate(names))

    def words(self, row: Row) -> list[str]:
        """Return the words; none if one of them is empty."""
        words = listed(row.data.get(self.tokens)) or []
        if words and not is_texts(words):
            raise row.wrong(self.tokens, 'the words of one sentence, such as ["Ann", "left"]')
        return words if all(map(str.strip, words)) else []

    def labels(self, row: Row) -> list[str]:
        """Return the tags; none if one of them is empty."""
        raws = listed(row.data.get(self.tags)) or []
        if not isinstance(raws, list) or any(isinstance(raw, list | dict) for raw in raws):
            raise row.wrong(self.tags, "a list with a tag for each word")
        raws = [self._names.get(raw, raw) if type(raw) is int else raw for raw in raws]
        tags = ["" if raw is None else normal(raw) for raw in raws]
        tags = tags if all(tags) else []
        return iob2(tags) if self.spans and marks_spans(tags) else tags

    def target(self, row: Row) -> list[str]:
        """Return the tags, as many as words."""
        words, tags = self.words(row), self.labels(row)
        if len(words) != len(tags):
            counts = f"{len(words)} words in {self.tokens} and {len(tags)} tags in {self.tags}"
            raise UserError(f"{row.where}: {counts}; give each word one, or delete the row.")
        return tags

    def every(self, tags: Iterable[str]) -> list[str]:
        """Return the labels of a task with some tags: of spans `O`, and `B-` and `I-` of a type."""
        marked = (tag[2:] or "_" if marks_spans([tag]) else tag for tag in tags if tag != "O")
        types = dict.fromkeys(marked)
        return ["O", *(f"{x}-{name}" for name in types for x in "BI")] if self.spans else [*tags]

    def score(self, guesses: Sequence[Any], golds: Sequence[Any]) -> Scores:
        """Return F1, precision and recall of spans, or accuracy and macro F1 of words; 0-100."""
        return (entity_scores if self.spans else word_scores)(guesses, golds)

    def kind(self, table: Table | HubTable, skip: Collection[str], typed: str) -> str:
        """Return the kind of a table; it is the `typed` one if the first full row has no words.

        Raises:
            UserError: some tags mark spans and others do not, or they are numbers without names.
        """
        if typed == "classification":
            rows = table.rows([self.tokens, self.tags])
            for row in rows:
                cells = [listed(row.data.get(name)) for name in (self.tokens, self.tags)]
                if all(cells):
                    break
            is_words = is_texts(cells[0]) and isinstance(cells[1], list)
            if not is_words or next(rows, None) is None:  # one row of lists is columns
                return typed
        counts = Counter(tag for row in table.rows([self.tags]) for tag in self.labels(row))
        tags = sorted(counts.keys() - skip, key=lambda tag: (counts[tag], tag))
        spans = [tag for tag in tags if tag == "O" or (tag[1:] and marks_spans([tag]))]
        others, are_numbers = [t for t in tags if t not in spans], all(map(is_number, tags))
        place = f"{table.file}: {self.tags} has {names(f'{t} ({counts[t]})' for t in tags)}"
        if not 1 < len(tags) <= max(_FEW, counts.total() / 2):
            raise UserError(f"{place}; a task has two tags or more, each of many words.")
        if typed != "tags" and marks_spans(tags):
            return "tagging"
        if typed == "tags" or not (typed == "tagging" or spans or are_numbers):
            return "tags"
        advice = f"Correct the others, type {skipping(others[:_SHOWN])} to leave their rows out,"
        if are_numbers:
            advice = "Type the names of the numbers in order, 'task.labels=[O,B-PER,I-PER]',"
        raise UserError(
            f"{place}; tags of spans are O, B-TYPE and I-TYPE, or those of another scheme.\n"
            f"{advice} or task.kind=tags to learn all as labels of words."
        )
