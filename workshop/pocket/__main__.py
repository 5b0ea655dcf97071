"""Write the rows and the corpus of the pocket world that ship: `python -m workshop.pocket`.

The same code gives the same texts on every machine; the compressed bytes may depend on its zlib, so
a file whose texts are as they should be is left alone.
"""

import argparse
import bz2
import gzip
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ptrun.pocket import corpus as shipped
from ptrun.pocket.tasks import Row, file_of, rows
from workshop.pocket import corpus
from workshop.pocket.tasks import MADE

_WORD = re.compile(r" ?\w+|\W")  # with the blank before it


def main() -> None:
    """Write each file whose rows have changed, and name it."""
    argparse.ArgumentParser("python -m workshop.pocket", description=__doc__).parse_args()
    for task, make in MADE.items():
        for split, made in make().items():
            file = file_of(task, split)
            if not file.is_file() or rows(task, split) != made:
                write(file, made)
                print(f"{file}: {len(made)} rows, {file.stat().st_size} bytes")
    documents = list(corpus.documents("train"))
    if not shipped.FILE.is_file() or list(shipped.documents()) != documents:
        shipped.FILE.write_bytes(packed(documents))
        size = shipped.FILE.stat().st_size
        print(f"{shipped.FILE}: {len(documents)} documents, {size} bytes")


def write(file: Path, made: Sequence[Row]) -> None:
    """Write rows as compressed JSON lines; their bytes do not depend on the time."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def packed(documents: Sequence[Sequence[str]]) -> bytes:
    """Return the bytes that `ptrun.pocket.corpus` reads; frequent words get short characters."""
    texts = [_WORD.findall("\n".join(document)) for document in documents]
    words = [word for word, _ in Counter(word for text in texts for word in text).most_common()]
    codes = {word: chr(code) for code, word in enumerate(words, shipped.FIRST)}
    lines = [json.dumps(words), *("".join(codes[word] for word in text) for text in texts)]
    return bz2.compress("".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    main()
