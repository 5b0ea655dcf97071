"""spaCy's training files as words and tags: .spacy, the JSON of version 2, .iob."""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from ptrun.errors import UserError
from ptrun.importing.conll import conll
from ptrun.importing.data import Words, cut, each, rows
from ptrun.importing.spans import json_spans
from ptrun.task.lines import top_of
from ptrun.task.source import Account


def spacy(file: Path, account: Account, text: str = "text") -> Iterator[Words]:
    """Yield the sentences of a file; `text` is the field of a text in JSON."""
    if file.suffix == ".spacy":
        yield from _docs(file, account)
    elif top_of(file).lstrip()[:1] not in ("[", "{"):
        yield from conll(file, account)
    elif not (document := next(rows(file), None)) or "paragraphs" not in document.data:
        yield from json_spans(file, account, text)
    else:
        for document in rows(file):
            for sentence in (s for p in each(document, "paragraphs") for s in each(p, "sentences")):
                tokens = each(sentence, "tokens")
                tags = [str(token.data.get("ner") or "-") for token in tokens]
                if "-" in tags:
                    account.left_out["a word without a tag (-)"] += 1
                elif tags:
                    yield Words(document.where, [token.text("orth") for token in tokens], tags)


def _docs(file: Path, account: Account) -> Iterator[Words]:
    """Yield the sentences of a DocBin; one that ends inside a span goes on with the next."""
    try:
        from spacy import blank
        from spacy.tokens import DocBin
    except ImportError as error:
        raise UserError(
            f"{file}: a DocBin of spaCy; type pip install spacy, or convert it where spaCy is: "
            "DocBin().from_disk(FILE).get_docs(vocab), and import .iob or JSON."
        ) from error
    try:
        docs = list(DocBin().from_disk(file).get_docs(blank("xx").vocab))
    except Exception as error:  # spaCy raises what zlib, msgpack and its Cython do
        raise UserError(f"{file}: not readable as a DocBin ({str(error)[:120]}).") from error
    for number, doc in enumerate(docs, start=1):
        if not doc.has_annotation("ENT_IOB"):
            account.left_out["a doc without doc.ents"] += 1
            continue
        if missing := sum(not token.ent_iob_ for token in doc):
            account.noted["words without annotation, read as O"] += missing
        numbers = list(accumulate(bool(token.is_sent_start) for token in doc))
        words = [token for token in doc if not token.is_space]
        tags = [f"{word.ent_iob_}-{word.ent_type_}" if word.ent_type_ else "O" for word in words]
        tokens, numbers = [word.text for word in words], [numbers[word.i] for word in words]
        yield from cut(f"{file} doc {number}", tokens, tags, numbers)
