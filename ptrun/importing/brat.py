"""brat's documents, a `.txt` and its `.ann`, as rows of words and tags: a line is a sentence.

No span is cut: a line that ends inside one goes on with the next line.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

from ptrun.errors import UserError, shown
from ptrun.importing.data import Words
from ptrun.importing.spans import Span, sentences
from ptrun.task.lines import start_of, text_lines
from ptrun.task.source import Account

_SPAN = re.compile(r"(T\S*)\t(\S+) (\d{1,9})( \d+;[\d; ]+)? (\d{1,9})\t(.*)")
_UNREAD = {
    **dict.fromkeys("R*", "a relation"),
    **dict.fromkeys("AM", "an attribute"),
    "E": "an event",
    "N": "a reference",
    "#": "a note",
}


def brat(file: Path, account: Account) -> Iterator[Words]:
    """Yield the sentences of an `.ann` file; what marks no text is left out and counted."""
    beside = file.with_suffix(".txt")
    if not beside.is_file():
        raise UserError(f"{beside}: no such file; {file.name} marks its characters.")
    text = "\ufeff" * start_of(beside).startswith(BOM_UTF8)  # a character, unless spans deny it
    text += "".join(line for _, line in text_lines(beside))
    plain, spans = " ".join(text.split()), []
    for where, line in text_lines(file):
        line = line.rstrip("\r\n")
        if unread := _UNREAD.get(line[:1]):
            account.noted[f"left out: {unread}"] += 1
        elif match := _SPAN.fullmatch(line):
            name, label, start, pieces, end, words = match.groups()
            if pieces and " ".join(words.split()) not in plain:
                raise UserError(
                    f"{where}: {name} has several pieces, with other words between them, which "
                    "tags cannot say. Mark one piece in brat, or delete the line."
                )
            name = f"{name} of line {where.rpartition(':')[2]}"
            spans.append(Span(int(start), int(end), label, words, name))
        elif line.strip():
            raise UserError(
                f"{where}: {shown(line)}; expected T1, a tab, TYPE START END, a tab and the text."
            )
    if plain:
        yield from sentences(str(file), text, spans)
    else:
        account.left_out["a document without words"] += 1
