"""`ptrun predict RUN --input FILE [--output FILE] [KEY=VALUE ...]`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser

_USAGE = "ptrun predict RUN --input FILE [--output FILE] [KEY=VALUE ...]"
_MORE = """\
FILE is CSV, TSV, JSON lines (each also .gz) or parquet, with the fields that the run's task reads,
named as in its own data; `ptrun check` with the run's options shows them. For example
  task=csv                          the columns of task.text
  task=pocket_sentiment, sst2       sentence
  task=pocket_ner                   tokens: the words, a list (JSON lines or parquet)
  task=pocket_qa, squad             question, context
  task=pocket_choice                article, question, options: a list
  task=pocket_facts, lama           predicate_id: the relation, sub_label, template
  task=pocket_multi                 task: one of its data sets, and what that one reads
Other fields are left alone, the labels too. A row's id is its field `id`, else its number from 1.

One JSON line a row, in order: {"id": ..., "answer": ..., "probability": ...}, as the run's own
predictions.jsonl has answers: a label, a tag a word, a text ("" for none), a list of texts, a
number; of a choice the index from 0, with the option's text as "option". The probability is there
where the read-out has one. All rows are checked before the first is answered; FILE may be large.

KEY=VALUE, where things are now and what answers:
  hardware=gpu, hardware.token_budget=N, hardware.precision=fp32
  backbone.path=DIR    the same weights elsewhere; others are refused
  data_dir=DIR, method.glove=FILE, method.pattern=@FILE, task.vocabulary=FILE, start=run:FOLDER
  outputs=DIR          where to look for RUN, a folder or an id or its beginning
"""


def main(arguments: Sequence[str]) -> None:
    """Answer the rows of a file with a finished run.

    Raises:
        UserError: the run, the file or an option is not what it should be.
    """
    given = _parser().parse_intermixed_args(arguments)
    from ptrun.predicting.answering import predict  # torch starts here, not with --help

    try:
        predict(given.run, given.typed, given.input, given.output)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `ptrun predict ... | head`: what reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ptrun predict",
        usage=_USAGE,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="a finished run: its folder, or its id")
    parser.add_argument("typed", metavar="KEY=VALUE", nargs="*", help="see below")
    parser.add_argument("--input", type=Path, required=True, metavar="FILE", help="rows to answer")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="a new file; default: standard output"
    )
    return parser
