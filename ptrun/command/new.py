"""Write the files of your own task, method, backbone or cluster, with comments.

Options go to ./ptrun_conf/GROUP/NAME.yaml, code to ./ptrun_parts/NAME.py, data of a task to
./data/NAME. No file is replaced. A folder without options is trusted then, as by ptrun trust.
"""

from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun new method my_method                      a class and its options
  ptrun new task my_task                          one text and a label, with sample data
  ptrun new task my_task --data reviews.csv --columns review,stars
  ptrun new task my_names --kind tagging          words with tags of spans, as of names
  ptrun new backbone my_bert                      a name for a checkpoint
  ptrun new cluster my_cluster                    the jobs of sweep.on=slurm
"""
_KINDS = """\
kinds of tasks and their fields, the columns of FILE:
  classification  text, label                       multilabel  text, labels (a list, or a;b)
  pair            first, second, label              tagging     tokens, tags (O, B-X, I-X)
  similarity      first, second, label (a number)   tags        tokens, tags (a part of speech)
  choice          context, question, options, answer
  extraction      question, context, answers        multispan   question, context, answers
  generation      text, answer (a text to write)
  own             a class in ./ptrun_parts, with sample data

FILE is CSV, TSV, JSON, parquet, Arrow or Excel; lists need JSON, parquet or Arrow."""
_KIND_NAMES = ["classification", "multilabel", "pair", "similarity", "choice", "tagging", "tags"]
_KIND_NAMES += ["extraction", "multispan", "generation", "own"]
_CAUSAL = "backbone=pocket_gpt2"
_TRY = "task=pocket_sentiment"

PARSER = Parser("new", __doc__, EXAMPLES)
PARSER.epilog = f"{_KINDS}\n\n{PARSER.epilog}"
PARSER.add_argument("what", choices=["task", "method", "backbone", "cluster"], help="its group")
PARSER.add_argument("name", metavar="NAME", help="small letters, digits and _")
_task = PARSER.add_argument_group("task")
_task.add_argument(
    "--kind", choices=_KIND_NAMES, metavar="KIND", help="see below; default classification"
)
_task.add_argument("--data", type=Path, metavar="FILE", help="your rows instead of a sample")
_task.add_argument("--columns", metavar="A,B", help="its columns, in the order of the fields")


def main(arguments: Sequence[str]) -> None:
    """Write the files, and print their names and the next two commands."""
    args = PARSER.parse(arguments)
    for key in ("kind", "data", "columns"):
        if getattr(args, key) is not None and args.what != "task":
            PARSER.error(f"--{key} is for a task")
    if args.columns is not None and args.data is None:
        PARSER.error("--columns names those of --data FILE")
    from ptrun.config.trust import new_options
    from ptrun.importing.data import write_new
    from ptrun.scaffold.tasks import check_name, part, task

    check_name(args.what, args.name)
    columns = args.columns.split(",") if args.columns else None
    if args.what == "task":
        files = task(args.name, args.kind or "classification", args.data, columns)
    else:
        files = part(args.what, args.name)
    with new_options():
        write_new(files)
        for file in files:
            print(f"wrote {file}")
    chosen, seeds = f"{args.what}={args.name}", "-m seed=1,2,3"
    line = f"{chosen} {'data_dir=data' if args.what == 'task' else _TRY}"
    line += f" {_CAUSAL}" if args.kind == "generation" else ""
    commands = [f"ptrun check {line}", f"ptrun {line} train.max_steps=20"]
    if args.what == "cluster":
        commands = [f"ptrun plan {seeds} {chosen}", f"ptrun {seeds} sweep.on=slurm {chosen}"]
    print("next:", *commands, sep="\n  ")
