"""Convert a checkpoint of CPM-2, GLM or Megatron-11B into a model folder.

Reads the authors' files without running their code and writes safetensors. Use the folder with
backbone=NAME backbone.path=DIR.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser

if TYPE_CHECKING:
    from ptrun.importing.convert import Imported

EXAMPLES = """\
  ptrun import glm SNAPSHOT --out DIR --tokenizer GPT2              GLM-2B or GLM-10B
  ptrun import cpm2 SHARDS --out DIR --tokenizer vocab.txt          CPM-2
"""
_KINDS = """\
what SOURCE holds, each a folder:
  cpm2      Megatron shards of CPM-2, or of PPT's T5: mp_rank_*_model_states.pt
  glm       GLM-2B or GLM-10B: the authors' mp_rank files, or a snapshot of the hub's
            pytorch_model*.bin or *.safetensors
  megatron  fairseq's Megatron-11B: dict.txt and model-model_part-*.pt, or model.pt if merged"""


def main(arguments: Sequence[str]) -> None:
    """Import a checkpoint and print one line about the folder it made.

    Raises:
        UserError: the arguments are wrong, or the checkpoint cannot be imported.
    """
    made = parser()
    given = made.parse(arguments)
    if given.unscale and given.kind != "cpm2":
        made.error("--unscale is for cpm2 alone")
    print(_import(given).line())


def _import(given: argparse.Namespace) -> "Imported":
    """Import what was typed; torch starts here, not with --help."""
    if given.kind == "cpm2":
        from ptrun.importing.cpm2 import import_cpm2

        return import_cpm2(
            given.source,
            given.out,
            unscale=given.unscale,
            dtype=given.dtype,
            tokenizer=given.tokenizer,
        )
    if given.kind == "glm":
        from ptrun.importing.glm import import_glm

        return import_glm(given.source, given.out, dtype=given.dtype, tokenizer=given.tokenizer)
    from ptrun.importing.megatron import import_megatron

    return import_megatron(given.source, given.out, dtype=given.dtype, tokenizer=given.tokenizer)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("import", __doc__, EXAMPLES)
    made.epilog = f"{_KINDS}\n\n{made.epilog}"
    made.add_argument("kind", choices=["cpm2", "glm", "megatron"], help="whose checkpoint it is")
    made.add_argument("source", type=Path, help="folder of the checkpoint")
    made.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    made.add_argument("--unscale", action="store_true", help="for PPT's T5 shards: undo the /100")
    made.add_argument("--dtype", choices=["fp16", "bf16", "fp32"], help="default: as saved")
    made.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FROM",
        help="cpm2: its vocab.txt; glm: folder with GPT-2's tokenizer.json (or vocab.json and "
        "merges.txt); megatron: folder with GPT-2's files or RoBERTa's",
    )
    return made
