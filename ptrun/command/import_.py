"""Convert a checkpoint, or a data set, from its authors' files into a folder for ptrun.

A checkpoint is read without running its code and written as safetensors: use the folder with
backbone=NAME backbone.path=DIR. A data set becomes files for data_dir=DIR: check it with ptrun
check task=NAME data_dir=DIR.
"""

from collections.abc import Sequence
from typing import Any

from ptrun.config.arguments import Parser, addition, additions, summary
from ptrun.errors import UserError, unknown
from ptrun.importing.kinds import KINDS

EXAMPLES = """\
  ptrun import hf google/mt5-xxl --out DIR --dtype bf16     a model with .bin files alone
  ptrun import conll CoNLL03 --task conll03 --out DIR       files of words and tags
  ptrun import conll --help                                 the options of a kind
"""
IMPORTS = "ptrun.imports"
"""The entry points of kinds; each is a command: an object with `PARSER` and `main`."""

PARSER = Parser("import", __doc__, EXAMPLES)
PARSER.add_argument("kind", metavar="KIND", help="what SOURCE is; type it first")
PARSER.add_argument("source", metavar="SOURCE", help="the folder or file; hf: also a hub id")
PARSER.add_argument("--out", required=True, metavar="DIR", help="folder to write")


def main(arguments: Sequence[str]) -> None:
    """Import a checkpoint or data and print one line about the folder, or about each file."""
    words = [*arguments]
    if words[:1] == ["data"]:  # as in `ptrun import data lama`
        del words[0]
    if not words or words[0].startswith("-"):
        lines = [f"  {name:<15}{summary(kind)}" for name, kind in kinds().items()]
        PARSER.epilog = "\n".join(["kinds:", *lines, "", str(PARSER.epilog)])
        PARSER.parse(words)
        PARSER.error(f"type KIND before {words[0]}")
    kind = KINDS.get(words[0]) or addition(IMPORTS, words[0])
    if kind is None:
        raise UserError(unknown(f"import {words[0]}", words[0], kinds()))
    kind.main(words[1:])


def kinds() -> dict[str, Any]:
    """Return all kinds: ptrun's, and those of installed packages."""
    return dict(sorted((additions(IMPORTS) | KINDS).items()))
