"""Write the golden list: `make golden`, or ARGS="ids", "prompts" or "answers" for one part.

A part moves in a commit of its own that names the reason; every other commit leaves it as it is.
"""

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

from tests.golden import answers, cells

PARTS = ("ids", "prompts", "answers")


def content(part, folder):
    """Return a part as plain data; runs and files go to a folder."""
    if part == "ids":
        return {str(cell): cells.run_id(cell, folder) for cell in cells.cells()}
    if part == "prompts":
        trained = {str(cell): cells.prompt(cell, folder) for cell in cells.cells()}
        return {"processor": cells.processor(), "cells": trained}
    return {"tables": answers.tables(folder), "papers": answers.papers()}


def recorded(part):
    return json.loads(file_of(part).read_text(encoding="utf-8"))


def file_of(part):
    return Path(__file__).with_name(f"{part}.json")


def main():
    parser = argparse.ArgumentParser(prog="make golden", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    chosen = parser.parse_args().parts or PARTS
    for part in chosen:
        if part not in PARTS:
            parser.error(f"{part}: no part; expected {', '.join(PARTS)}")
        with tempfile.TemporaryDirectory() as folder:
            made = content(part, Path(folder))
        text = partial(json.dumps, indent=1, ensure_ascii=False, sort_keys=True)
        before = file_of(part).read_text(encoding="utf-8") if file_of(part).is_file() else ""
        file_of(part).write_text(text(made) + "\n", encoding="utf-8")
        same = before == text(made) + "\n"
        print(f"{file_of(part)}: {'as before' if same else 'written'}", flush=True)


if __name__ == "__main__":
    main()
