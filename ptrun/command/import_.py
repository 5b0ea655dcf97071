"""Convert a checkpoint, or a data set, from its authors' files into a folder for ptrun.

A checkpoint of CPM-2, GLM, Megatron-11B or transformers is read without running its code and
written as safetensors. Use the folder with backbone=NAME backbone.path=DIR. For data sets type
`ptrun import data --help`.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

if TYPE_CHECKING:
    from ptrun.importing.data import MadeFile

EXAMPLES = """\
  ptrun import glm SNAPSHOT --out DIR --tokenizer GPT2              GLM-2B or GLM-10B
  ptrun import cpm2 SHARDS --out DIR --tokenizer vocab.txt          CPM-2
  ptrun import hf google/mt5-xxl --out DIR --dtype bf16             a model with .bin files alone
  ptrun import data superglue SuperGLUE --out DIR                   task=boolq, cb, copa, ...
"""
_KINDS = """\
what SOURCE is, a folder or, for hf, a hub id:
  cpm2      Megatron shards of CPM-2, or of PPT's T5: mp_rank_*_model_states.pt
  glm       GLM-2B or GLM-10B: the authors' mp_rank files, or a snapshot of the hub's
            pytorch_model*.bin or *.safetensors
  hf        a folder or hub id with config.json and pytorch_model*.bin or *.safetensors; a folder
            of this name wins over an id
  megatron  fairseq's Megatron-11B: dict.txt and model-model_part-*.pt"""
_DATA = """\
Convert a data set as its authors publish it into a folder for data_dir=.

Check it with ptrun check task=NAME data_dir=DIR. Hidden test labels are left out.
"""
DATA_EXAMPLES = """\
  ptrun import data lama P-tune_LAMA --out DIR                       task=lama
  ptrun import data glue GLUE --out DIR                              task=glue_rte, glue_qqp, ...
  ptrun import data superglue SuperGLUE --out DIR                    task=boolq, cb, copa, ...
  ptrun import data fewglue FewGLUE_32dev --out DIR                  setting=fewglue
  ptrun import data conll CoNLL03 --task conll03 --out DIR           words first, tags last
  ptrun import data conll CoNLL05 --task conll05_wsj --test CoNLL05/conll05.test.wsj.txt --out DIR
  ptrun import data conll conll-2012/v4/data --task conll12 --words 4 --roles 12:-2 --out DIR
  ptrun import data spans marked.jsonl --task my_names --out DIR     a new task
  ptrun import data longhealth benchmark_v5.json --out DIR           method=cartridge
  ptrun import data label_studio export.json --task my_names --out DIR
"""
_DATA_KINDS = """\
what SOURCE is, a folder or, for spans and label_studio, also a file:
  lama       P-tuning's LAMA files: relations.jsonl, 29k-vocab.json, 34k-vocab.json and
             fact-retrieval/original/P*/{train,dev,test}.jsonl; OptiPrompt's LPAQA_relations.jsonl
             and AutoPrompt_relations.jsonl are read too if you put them there
  glue       <Task>/{train,dev,test}.tsv of GLUE: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE
  superglue  <Task>/{train,val}.jsonl of SuperGLUE
  fewglue    <Task>/{train,dev32,val}.jsonl of P-tuning's FewGLUE_32dev
  conll      files of columns, of names with train, dev (valid, testa), test (testb): CoNLL-2003
             or any other IOB file; or the lines `INDEX WORDS ||| TAGS` of P-tuning v2's roles
  spans      JSON lines {"text": ..., "spans": [{"start": 0, "end": 3, "label": "PER"}]}; the key
             may be "entities", a span [0, 3, "PER"]; end is the character after the last
             (Prodigy), "label" or "labels", with start_offset and end_offset (doccano)
  label_studio  a JSON export of Label Studio with labels of texts
  squad      SQuAD's own JSON: train-v1.1.json, dev-v1.1.json or -v2.0
  longhealth LongHealth's benchmark_v5.json; qasper: qasper-dev-v0.3.json; squad_articles: SQuAD's
             own JSON. Each document gets a folder, document.txt and questions.jsonl, for
             method=cartridge

_conll, spans, label_studio: a folder has files of names with train, dev, test. One file is divided
into 8 : 1 : 1. If --task is new, its options are written to ./ptrun_conf/task/NAME.yaml."""
_OPTIONS = {
    "unscale": ("cpm2",),
    "tokenizer": ("cpm2", "glm", "megatron"),
    "revision": ("hf",),
}
"""The kinds of checkpoints that an option is for."""
_SOURCES = {
    **dict.fromkeys(("lama", "glue", "superglue", "fewglue"), "folder"),
    "squad": "file or folder",
    **dict.fromkeys(("longhealth", "qasper", "squad_articles"), "file"),
    **dict.fromkeys(("conll", "spans", "label_studio"), "file or folder"),
}
"""The kinds of data sets, and what their source is."""
_TAGGED, _MARKED = ("conll", "spans", "label_studio"), ("spans", "label_studio")
_DATA_OPTIONS = {
    "text": _MARKED,
    **dict.fromkeys(("words", "tags", "roles"), ("conll",)),
    **dict.fromkeys(("task", "train", "dev", "test"), _TAGGED),
}
"""The kinds of data sets that an option is for."""


def main(arguments: Sequence[str]) -> None:
    """Import a checkpoint or data and print one line about the folder, or about each file."""
    if list(arguments[:1]) == ["data"]:
        return _data(arguments[1:])
    args = PARSER.parse(arguments)
    _check_options(PARSER, args, _OPTIONS)
    room = "importing" if args.kind == "hf" else "papers"
    module = import_module(f"ptrun.{room}.{args.kind}")  # torch starts here, not with --help
    taken = {option: value for option in _OPTIONS if (value := getattr(args, option))}
    convert = getattr(module, f"import_{args.kind}")
    print(convert(args.source, args.out, dtype=args.dtype, **taken).line())


def _check_options(
    parser: Parser, args: argparse.Namespace, kinds_of: Mapping[str, Sequence[str]]
) -> None:
    """Refuse an option that is not for the kind."""
    for option, kinds in kinds_of.items():
        if getattr(args, option) not in (None, False) and args.kind not in kinds:
            parser.error(f"--{option} is for {', '.join(kinds)} alone")


def _data(arguments: Sequence[str]) -> None:
    """Import a data set and print one line about each file."""
    args = DATA_PARSER.parse(arguments)
    _check_options(DATA_PARSER, args, _DATA_OPTIONS)
    if args.kind in _TAGGED and args.task is None:
        DATA_PARSER.error(f"{args.kind} needs --task NAME, such as --task conll03")
    expected, source = _SOURCES[args.kind], args.source
    kind_of_source = "file" if source.is_file() else "folder" if source.is_dir() else "nothing"
    if kind_of_source not in expected:
        raise UserError(f"{source}: no such {expected}; unpack an archive first.")
    from ptrun.config.trust import is_without_options, tell_trust
    from ptrun.importing.data import write

    new = is_without_options()
    files, options_of_task = _files(args)
    for line in write(args.out, files, options_of_task):
        print(line)
    for file in options_of_task:
        print(f"{file}: options of task={args.task}")
        tell_trust(new=new)


def _files(args: argparse.Namespace) -> "tuple[Sequence[MadeFile], dict[Path, str]]":
    """Return the files to write, and the options of a new task of tags by their file."""
    if args.kind not in _TAGGED:
        if _SOURCES[args.kind] == "file":
            from ptrun.importing.documents import documents

            return documents(args.kind, args.source), {}
        module = import_module("ptrun.papers.published")
        return getattr(module, args.kind)(args.source), {}
    from ptrun.importing.data import tagging_files

    if args.kind == "conll":
        from ptrun.importing import conll

        read = partial(conll.rows, conll.Columns(args.words or 1, args.tags or -1, args.roles))
    else:
        from ptrun.importing import spans

        marked = spans.json_spans if args.kind == "spans" else spans.label_studio
        read = partial(spans.tagged_rows, partial(marked, text=args.text or "text"))
    parts = {"train": args.train, "dev": args.dev, "test": args.test}
    return tagging_files(args.source, args.task, read, parts)


def _column(text: str) -> int:
    if not re.fullmatch(r"-?[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no column; they count from 1 or from -1")
    return int(text)


def _columns(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST, such as 12:-2")
    return _column(first), _column(last)


PARSER = Parser("import", __doc__, EXAMPLES)
PARSER.epilog = f"{_KINDS}\n\n{PARSER.epilog}"
PARSER.add_argument("kind", choices=["cpm2", "glm", "hf", "megatron"], help="what SOURCE is")
PARSER.add_argument("source", type=Path, help="the checkpoint")
PARSER.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
PARSER.add_argument("--revision", metavar="NAME", help="hf: branch, tag or commit; default main")
PARSER.add_argument("--unscale", action="store_true", help="for PPT's T5 shards: undo the /100")
PARSER.add_argument("--dtype", choices=["fp16", "bf16", "fp32"], help="default: as saved")
PARSER.add_argument(
    "--tokenizer",
    type=Path,
    metavar="FROM",
    help="cpm2: its vocab.txt; glm and megatron: folder with GPT-2's tokenizer.json, or "
    "vocab.json and merges.txt",
)

DATA_PARSER = Parser("import data", _DATA, DATA_EXAMPLES)
DATA_PARSER.epilog = f"{_DATA_KINDS}\n\n{DATA_PARSER.epilog}"
DATA_PARSER.add_argument("kind", choices=list(_SOURCES), help="whose files they are")
DATA_PARSER.add_argument("source", type=Path, help="folder of the files, or a file")
DATA_PARSER.add_argument(
    "--out", type=Path, required=True, metavar="DIR", help="the data_dir to be"
)
_tags = DATA_PARSER.add_argument_group("conll, spans and label_studio")
_tags.add_argument("--task", metavar="NAME", help="the tagging task to write")
for part in ("train", "dev", "test"):
    _tags.add_argument(
        f"--{part}", type=Path, metavar="FILE", help="its file; conll: or a folder of *conll"
    )
_tags.add_argument("--text", metavar="KEY", help="not conll: field of the text; default text")
_conll = DATA_PARSER.add_argument_group("conll", "columns count from 1, or from -1 at the end")
_conll.add_argument("--words", type=_column, metavar="N", help="column of words; default 1")
_conll.add_argument("--tags", type=_column, metavar="N", help="column of tags; default -1")
_conll.add_argument(
    "--roles", type=_columns, metavar="N:N", help="first and last column of roles in brackets"
)
