"""Write the rows of the pocket tasks that the package ships: `python -m workshop.pocket`.

The same code gives the same rows on every machine; the compressed bytes may depend on its zlib, so
a file whose rows are as they should be is left alone.
"""

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from ptrun.pocket.tasks import Row, file_of, rows
from workshop.pocket.tasks import MADE


def main() -> None:
    """Write each file whose rows have changed, and name it."""
    argparse.ArgumentParser("python -m workshop.pocket", description=__doc__).parse_args()
    for task, make in MADE.items():
        for split, made in make().items():
            file = file_of(task, split)
            if not file.is_file() or rows(task, split) != made:
                write(file, made)
                print(f"{file}: {len(made)} rows, {file.stat().st_size} bytes")


def write(file: Path, made: Sequence[Row]) -> None:
    """Write rows as compressed JSON lines; their bytes do not depend on the time."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
