"""Texts with marked spans as rows of words and tags: JSON lines, Prodigy, doccano, Label Studio."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from operator import itemgetter
from pathlib import Path

import regex

from ptrun.errors import UserError, names, shown
from ptrun.importing.data import Words, cut, each, inner, rows, whole_number
from ptrun.task.source import LEFT_OUT, VERDICT, Account, Row

_SINGLE = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
_PART = rf"(?!{_SINGLE})[\p{{L}}\p{{N}}\p{{M}}_]"
# `\p{Cf}` is invisible, such as a joiner inside a word
_WORD = regex.compile(rf"{_PART}(?:\p{{Cf}}*{_PART})*|[^\s\p{{C}}]")

# A text with marked spans as words with IOB2 tags.
#
# Words are runs of letters, digits and marks; every other visible character is a word of its own,
# and so is every Chinese character and Japanese kana, as no spaces stand between them.
#
# Programs count characters in different ways: an emoji is two in JavaScript and Java (UTF-16), a
# line end of Windows is one in a browser and in Python, a byte order mark may be one. The texts of
# the spans tell how: the text is taken as it is if they fit, else in the first way that they fit.

_SECOND = "\ufffb"  # an invisible character, for the second unit of one that UTF-16 writes as two


@dataclass(frozen=True)
class Span:
    """The characters `start` to `end`, from 0 and without the last, their type, and their text.

    A text of None is not checked. `name` is that of the span in its file.
    """

    start: int
    end: int
    label: str
    text: str | None = None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or f'{self.start}-{self.end}'} ({self.label})"

    def fits(self, text: str) -> bool:
        """Return whether the span's own text stands there; spaces and line ends are the same."""
        marked = text[self.start : self.end].replace(_SECOND, "")
        return self.text is None or self.text.split() == marked.split()


def words(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word."""
    return [word.span() for word in _WORD.finditer(text)]


def sentences(where: str, text: str, spans: Sequence[Span]) -> Iterator[Words]:
    """Yield the words and tags of each line of a text; one that ends inside a span goes on."""
    text = counted(text, spans)
    tokens, tags = tagged(where, text, spans)
    ends = [end.start() for end in re.finditer("\r\n?|\n", text)]
    yield from cut(where, tokens, tags, [bisect_right(ends, start) for start, _ in words(text)])


def counted(text: str, spans: Sequence[Span]) -> str:
    """Return a text as its spans count the characters, the most usual way first."""
    for lines in (text, text.removeprefix("\ufeff")):
        for reading in (lines, lines.replace("\r\n", "\n")):
            units = "".join(c if c <= "\uffff" else c + _SECOND for c in reading)
            for counts in (reading, units):
                if all(span.fits(counts) for span in spans):
                    return counts
    return text


def tagged(where: str, text: str, spans: Sequence[Span]) -> tuple[list[str], list[str]]:
    """Return the words of a text and their tags, `O`, `B-<type>` or `I-<type>`.

    Spans are in any order; whitespace at their ends does not count.
    """
    places = words(text)
    if not places:
        raise UserError(f"{where}: {shown(text)} has no word. Remove it.")
    owners: list[Span | None] = [None] * len(places)
    tags = ["O"] * len(places)
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        for number, index in enumerate(_covered(where, text, places, span)):
            if (other := owners[index]) is not None:
                raise UserError(
                    f"{where}: spans {other} and {span} overlap; a word has one tag. Keep one."
                )
            owners[index] = span
            tags[index] = f"{'I' if number else 'B'}-{span.label}"
    return [text[start:end].replace(_SECOND, "") for start, end in places], tags


def _covered(where: str, text: str, places: Sequence[tuple[int, int]], span: Span) -> range:
    """Return the indices of a span's words."""
    if not 0 <= span.start < span.end <= len(text):
        raise UserError(
            f"{where}: span {span} is outside the text of {len(text)} characters. start counts "
            "from 0, and end is the character after the last."
        )
    marked = text[span.start : span.end]
    if not span.fits(text):
        raise UserError(
            f"{where}: span {span} says {shown(span.text)}, but the text there is {shown(marked)}. "
            "start and end count characters, where an emoji is one, or UTF-16 units, not bytes."
        )
    touched = range(
        bisect_right(places, span.start, key=itemgetter(1)),
        bisect_left(places, span.end, key=itemgetter(0)),
    )
    if not touched:
        raise UserError(f"{where}: span {span} has no word, only spaces. Remove it.")
    left, right = places[touched[0]], places[touched[-1]]
    for start, end in (left, right):
        if start < span.start or end > span.end:
            raise UserError(
                f"{where}: span {span}, {shown(marked)}, cuts the word "
                f"{shown(text[start:end])}. Mark whole words: {left[0]}-{right[1]}."
            )
    return touched


# Files of texts with marked spans: JSON lines, and the JSON export of Label Studio.

_KEYS = ("spans", "entities", "label", "labels", "annotations", "ents")
_PARTS = ("start", "end", "label")
_DOCCANO = {"start_offset": "start", "end_offset": "end"}
_MARKUP = re.compile(r"<!--.*?-->|</?[a-zA-Z!][^>]*>", re.DOTALL)
_KEY = {"textarea": "answer", "taxonomy": "kind=multilabel task.label"}
_KEY |= dict.fromkeys(("rating", "number"), "kind=regression task.label")
_REGIONS = ("labels", "hypertextlabels")
_WHOLE_TEXT = ("choices", "taxonomy", "rating", "number", "textarea", "pairwise")


def json_spans(file: Path, account: Account, text: str = "text") -> Iterator[Words]:
    """Yield the rows of a JSON file, also of Prodigy and doccano.

    A row has a text and `spans`, `entities`, `label` or `labels`: objects with `start`, `end` and
    `label` (doccano: `start_offset`, `end_offset`), or lists of the three. Rows that Prodigy's
    `answer` rejects or ignores are left out and counted.
    """
    for row in rows(file):
        if row.data.get(VERDICT) in LEFT_OUT:
            account.left_out[f"{VERDICT} is {row.data[VERDICT]}"] += 1
            continue
        keys = [key for key in _KEYS if key in row.data]
        key = next((key for key in keys if row.data[key]), next(iter(keys), None))
        if key is None:
            raise UserError(
                f"{row.where}: no field 'spans' or 'entities'; this row has "
                f"{names(sorted(row.data))}. A text without spans has []."
            )
        if isinstance(relations := row.data.get("relations"), list) and relations:
            account.noted["left out: a relation"] += len(relations)
        yield _whole(row.where, _text(row, text), _marked(row, key))


def _whole(where: str, text: str, spans: Sequence[Span]) -> Words:
    return Words(where, *tagged(where, counted(text, spans), spans))


def _text(row: Row, key: str) -> str:
    if key not in row.data:
        raise UserError(
            f"{row.where}: no field {key!r}; this row has {names(sorted(row.data))}. Name the "
            "field of the text: --text KEY."
        )
    return row.text(key)


def _marked(row: Row, key: str) -> list[Span]:
    """Return the spans of a row, which are objects or lists of three."""
    spans = row.typed(key, list, "objects")
    if spans and all(isinstance(span, str) for span in spans):
        raise row.wrong(key, f"spans. Labels of whole texts are task=csv task.label={key}")
    objects = []
    for span in spans:
        if isinstance(span, list) and len(span) == len(_PARTS):
            objects.append(dict(zip(_PARTS, span, strict=True)))
        elif isinstance(span, dict):
            objects.append(
                {_DOCCANO.get(str(name), str(name)): value for name, value in span.items()}
            )
        else:
            raise row.wrong(key, "objects")
    return [_span(Row(row.where, span)) for span in objects]


def label_studio(file: Path, account: Account, text: str = "text") -> Iterator[Words]:
    """Yield the tasks of a JSON export of Label Studio that somebody annotated.

    Tasks without an annotation, or with a cancelled one, are left out and counted, and so are
    results about whole texts and relations. A file of whole texts alone is refused.
    """
    has_regions, whole = False, ""
    for index, row in enumerate(rows(file)):
        task = Row(f"{file} task {row.data.get('id', index)}", row.data)
        if "annotations" not in task.data:
            raise UserError(
                f"{task.where}: no field 'annotations'. Export with the format JSON, not JSON-MIN, "
                "from Label Studio 1.0 or newer. Labels of whole texts are read from JSON-MIN:\n"
                f"ptrun task=csv task.train={file} task.text={text} task.label=NAME"
            )
        if (annotation := _annotation(task)) is None:
            account.left_out["no annotation, or a cancelled one"] += 1
            continue
        regions = []
        for result in each(annotation, "result"):
            kind = str(result.data.get("type"))
            if kind in _REGIONS:
                regions.append(result)
            elif kind == "relation" or kind in _WHOLE_TEXT:
                account.noted[f"left out: a result of type {kind}"] += 1
            else:
                raise UserError(
                    f"{task.where}: a result of type {shown(kind)}; expected {names(_REGIONS)}."
                )
            if kind in _WHOLE_TEXT:
                name = result.data.get("from_name", "NAME")
                key = f"task.{_KEY.get(kind, 'label')}={name}"
                whole = f"{task.where}: a result of type {kind}, about the whole text. Export "
                whole += (
                    f"JSON-MIN from Label Studio, and type\nptrun task=csv task.train=FILE {key}"
                )
        shown_text = _text(inner(task, "data"), text)
        if any(region.data["type"] == "hypertextlabels" for region in regions):
            shown_text = unescape(_MARKUP.sub("", shown_text))  # as a browser shows it
        spans = [_region(region) for region in regions]
        has_regions = has_regions or bool(spans)
        after = [s for s in spans if max(shown_text[: max(s.end, 0)], default="") > "\uffff"]
        if after and all(span.text is None for span in after):
            raise UserError(
                f"{task.where}: span {after[0]} does not say its text, and an emoji before its end "
                "may count as one character or as two. Export again with the texts of spans."
            )
        yield _whole(task.where, shown_text, spans)
    if whole and not has_regions:
        raise UserError(f"{whole} task.text={text}")


def _annotation(task: Row) -> Row | None:
    """Return the annotation of a task, or None; of several, the one marked as ground truth."""
    every = [a for a in each(task, "annotations") if not a.data.get("was_cancelled")]
    true = [annotation for annotation in every if annotation.data.get("ground_truth")]
    chosen = true if len(every) > 1 else every
    if every and len(chosen) != 1:
        count = f"{len(every)} annotations, {len(true)} marked as ground truth"
        raise UserError(f"{task.where}: {count}; mark one in Label Studio and export again.")
    return chosen[0] if chosen else None


def _region(region: Row) -> Span:
    """Return the span of a marked region; in a hypertext it counts the characters shown."""
    value = inner(region, "value")
    labels = value.value(str(region.data["type"]))
    if "globalOffsets" in value.data:
        value = value.with_fields(inner(value, "globalOffsets").data)
    if not isinstance(labels, list) or len(labels) != 1:
        raise UserError(f"{value.where}: labels of a span are {shown(labels)}; expected one.")
    return _span(value.with_fields({"label": labels[0]}))


def _span(row: Row) -> Span:
    label = row.text("label").strip()
    if not label:
        raise UserError(f"{row.where}: a span has an empty label. Name its type.")
    text = row.text("text") if "text" in row.data else None
    return Span(whole_number(row, "start"), whole_number(row, "end"), label, text)
