"""`ptrun import cpm2 SHARDS --out DIR [--unscale] [--dtype bf16] [--tokenizer VOCAB.txt]`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ptrun.errors import UserError


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are shown like all others."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"import: {message}.\n{self.format_usage().strip()}")


def main(arguments: Sequence[str]) -> None:
    """Import a checkpoint and print one line about the folder it made.

    Raises:
        UserError: the arguments are wrong, or the checkpoint cannot be imported.
    """
    given = _parser().parse_args(arguments)
    from ptrun.importing.cpm2 import import_cpm2  # torch starts here, not with --help

    made = import_cpm2(
        given.shards,
        given.out,
        unscale=given.unscale,
        dtype=given.dtype,
        tokenizer=given.tokenizer,
    )
    prompt = ", a prompt" if made.has_prompt else ""
    print(
        f"{made.folder}: {made.parameters:,} parameters, {made.sizes.encoder_layers}+"
        f"{made.sizes.decoder_layers} layers, vocabulary {made.sizes.vocab:,}, "
        f"{made.nbytes / 1e9:.2f} GB{prompt}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ptrun import", usage="ptrun import cpm2 SHARDS --out DIR [options]")
    parser.add_argument("kind", choices=["cpm2"], help="what the shards hold: CPM-2, or PPT's T5")
    parser.add_argument("shards", type=Path, help="folder with mp_rank_*_model_states.pt")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--unscale", action="store_true", help="for PPT's T5 shards: undo the /100")
    parser.add_argument("--dtype", choices=["fp16", "bf16", "fp32"], help="default: as saved")
    parser.add_argument("--tokenizer", type=Path, metavar="VOCAB.txt", help="CPM-2's vocabulary")
    return parser
