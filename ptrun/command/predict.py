"""Predict the rows of a file with a finished run.

Writes one line a row. Every row is checked before the first one is predicted; the file may be
larger than memory.
"""

from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

EXAMPLES = """\
  ptrun predict outputs/runs/RUN --input new.csv                       JSON lines on the terminal
  ptrun predict RUN --input new.jsonl.gz --output predictions.jsonl hardware=gpu
  ptrun predict 7accbe96 --input new.csv --output new_predictions.csv --probabilities
  ptrun predict RUN RUN --input rows.jsonl      the field run of a row names its run
  ptrun predict RUN --input test.jsonl --submission glue               GLUE's and SuperGLUE's files
"""
_MORE = """\
--input takes CSV, TSV, JSON, JSON lines, parquet, Arrow or Excel, packed too, with these fields:
  task=csv                          the columns of task.text
  task=pocket_sentiment, sst2       sentence
  task=pocket_ner                   tokens: the words, a list (JSON lines or parquet)
  task=pocket_qa, squad             question, context
  task=pocket_choice                article, question, options: a list
  task=pocket_writing               facts
  task=csv task.messages=talk       talk: a list of {"role", "content"}; the next turn is written
  task=pocket_facts, lama           predicate_id: the relation, sub_label, template
  task=pocket_multi                 task: one of its data sets, and the fields of that one
Other fields, labels too, are ignored. The id of a row is its field `id`, else its number from 1.

A line is {"id": ..., "prediction": ..., "probability": ...}. The prediction is a label, a list of
tags (one a word), a text ("" for none), a list of texts, or a number. For multiple choice it is the
index from 0, with the option's text as "option"; -1 and null where a word that is no option was
likeliest. Some read-outs have no probability.
An --output that ends in .csv or .tsv becomes a table with a header; any other is JSON lines.

Several runs over one frozen backbone share passes: the field `run` of each row has the id of its
run, the start of it or the 8 digits at its end, and so has each line.

--submission writes the file that the server of GLUE or SuperGLUE takes, under its name (CoLA.tsv,
BoolQ.jsonl, ...), from the hidden test: rows with their field idx or index. `ptrun import
superglue` makes such rows of SuperGLUE's test files.

KEY=VALUE sets the hardware and the place of files that moved:
  hardware=gpu, hardware.token_budget=N, hardware.precision=fp32
  backbone.path=DIR    the same weights elsewhere; others are rejected
  data_dir=DIR, method.glove=FILE, task.vocabulary=FILE, start=run:FOLDER
  outputs=DIR          where RUN is looked up
"""

PARSER = Parser("predict", __doc__, EXAMPLES)
PARSER.epilog = f"{_MORE}\n{PARSER.epilog}"
PARSER.add_argument(
    "runs", nargs="+", metavar="RUN",
    help="finished runs: folder, id, start of an id or its 8 digits; and KEY=VALUE, see below",
)  # fmt: skip
PARSER.add_argument(
    "--input", type=Path, required=True, metavar="FILE",
    help="rows to predict; - reads JSON lines from standard input",
)  # fmt: skip
_out = PARSER.add_mutually_exclusive_group()
_out.add_argument(
    "--output", type=Path, metavar="FILE", help="a new file; default: standard output"
)
_out.add_argument(
    "--submission", type=Path, metavar="DIR", help="write the file of a leaderboard there"
)
PARSER.add_argument(
    "--probabilities", action="store_true", help="also the probability of every label"
)
PARSER.add_argument("--top", type=int, metavar="K", help="also the K likeliest labels")
PARSER.add_argument(
    "--max-new-tokens", type=int, metavar="N", help="the most tokens of a written text"
)
PARSER.add_argument(
    "--raw", action="store_true",
    help="in CSV and TSV, texts that begin with = + - @ as they are (a spreadsheet runs them)",
)  # fmt: skip
PARSER.add_argument(
    "--quoting", choices=["none", "cells"], help="none: quotes in a CSV or TSV are plain text"
)
PARSER.add_argument("--separator", metavar="CHARACTER", help="of a CSV: one character, or tab")
PARSER.add_argument("--columns", metavar="A,B", help="of a CSV without a header")
PARSER.add_argument("--encoding", metavar="NAME", help="of a CSV or of JSON, if not UTF-8")


def main(arguments: Sequence[str]) -> None:
    """Predict the rows of a file with a finished run."""
    args = PARSER.parse(arguments)
    from ptrun.predicting.answering import Detail  # imports torch
    from ptrun.predicting.together import predict
    from ptrun.task.table import Given

    typed = [word for word in args.runs if "=" in word]
    runs = [word for word in args.runs if "=" not in word]
    if not runs:
        raise UserError("predict: no run. Type ptrun predict RUN --input FILE.")
    if len(runs) > 1 and args.submission:
        raise UserError("predict --submission is for one run; leave the others out.")
    detail = Detail(args.probabilities, args.top, args.raw, args.max_new_tokens)
    columns = args.columns.split(",") if args.columns else None
    form = Given(args.separator, args.quoting, columns, args.encoding)
    where = {"form": form, "submission": args.submission}
    predict(runs, typed, args.input, args.output, detail=detail, **where)
