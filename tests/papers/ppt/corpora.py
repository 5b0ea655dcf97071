"""Corpora whose every line says where it stands: `document 3 line 5 of this text`."""

import gzip
import json
import re


def document(number, lines=8):
    return [f"document {number} line {place} of this text" for place in range(lines)]


def origin(line):
    """Return the document and the place that a line says."""
    return tuple(int(found) for found in re.findall(r"\d+", line)[:2])


def write(folder, documents, name="train.jsonl.gz", field="doc"):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    opened = gzip.open if name.endswith(".gz") else open
    with opened(file, "wt", encoding="utf-8") as out:
        for lines in documents:
            text = "\n".join(lines)
            out.write(text + "\n\n" if ".txt" in name else json.dumps({field: text}) + "\n")
    return file
