"""Convert a checkpoint, or a data set, from its authors' files into a folder for ptrun.

A checkpoint of CPM-2, GLM, Megatron-11B or transformers is read without running its code and
written as safetensors. Use the folder with backbone=NAME backbone.path=DIR. For data sets type
`ptrun import data --help`.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

if TYPE_CHECKING:
    from ptrun.hub.convert import Imported
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
  megatron  fairseq's Megatron-11B: dict.txt and model-model_part-*.pt, or model.pt if merged"""
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

conll, spans, label_studio: a folder has files of names with train, dev, test. One file is divided
into 8 : 1 : 1. If --task is new, its options are written to ./ptrun_conf/task/NAME.yaml."""
_DOCUMENTS = ["longhealth", "qasper", "squad_articles"]
_TAGGED = ["conll", "spans", "label_studio"]
_MARKED = ["spans", "label_studio"]
_ONLY = {"text": _MARKED, **{key: ["conll"] for key in ("words", "tags", "roles")}}
_ONLY |= {key: _TAGGED for key in ("task", "train", "dev", "test")}
"""The kinds that an option is for."""


def main(arguments: Sequence[str]) -> None:
    """Import a checkpoint or data and print one line about the folder, or about each file.

    Raises:
        UserError: the arguments are wrong, or the source cannot be imported.
    """
    if list(arguments[:1]) == ["data"]:
        return _data(arguments[1:])
    made = parser()
    given = made.parse(arguments)
    if given.unscale and given.kind != "cpm2":
        made.error("--unscale is for cpm2 alone")
    if given.tokenizer and given.kind == "hf":
        made.error("--tokenizer is not for hf: the source holds its tokenizer")
    if given.revision and given.kind != "hf":
        made.error("--revision is for hf alone")
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
    if given.kind == "hf":
        from ptrun.importing.hf import import_hf

        source, revision = str(given.source), given.revision or "main"
        return import_hf(source, given.out, dtype=given.dtype, revision=revision)
    from ptrun.importing.megatron import import_megatron

    return import_megatron(given.source, given.out, dtype=given.dtype, tokenizer=given.tokenizer)


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("import", __doc__, EXAMPLES)
    made.epilog = f"{_KINDS}\n\n{made.epilog}"
    made.add_argument("kind", choices=["cpm2", "glm", "hf", "megatron"], help="what SOURCE is")
    made.add_argument("source", type=Path, help="the checkpoint")
    made.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    made.add_argument("--revision", metavar="NAME", help="hf: branch, tag or commit; default main")
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


def _data(arguments: Sequence[str]) -> None:
    """Import a data set and print one line about each file."""
    made = data_parser()
    given = made.parse(arguments)
    for key, kinds in _ONLY.items():
        if getattr(given, key) is not None and given.kind not in kinds:
            made.error(f"--{key} is for {', '.join(kinds)} alone")
    if given.kind in _TAGGED and given.task is None:
        made.error(f"{given.kind} needs --task NAME, such as --task conll03")
    is_file, is_folder = given.source.is_file(), given.source.is_dir()
    alone = given.kind in _DOCUMENTS  # of which one file has all
    either = given.kind in (*_TAGGED, "squad")
    if not (is_file and (either or alone)) and not (is_folder and not alone):
        wanted = "file" if alone else "file or folder" if either else "folder"
        raise UserError(f"{given.source}: no such {wanted}; unpack an archive first.")
    from ptrun.config.trust import OPTIONS, tell_trust
    from ptrun.importing.data import write

    made_task = given.kind == "conll" and (given.source.is_file() or _is_new(given.task))
    marked = given.kind in _MARKED or made_task
    files, option, content = _marks(given) if marked else (_files(given), None, "")
    new = not OPTIONS.exists()
    for line in write(given.out, files, {} if option is None else {option: content}):
        print(line)
    if option is not None:
        print(f"{option}: options of task={given.task}")
        tell_trust(new=new)


def _is_new(task: str) -> bool:
    from ptrun.config.paths import options

    return task not in options("task")


def _marks(given: argparse.Namespace) -> "tuple[Sequence[MadeFile], Path | None, str]":
    """Return the files to write for marked spans, and the file and text of a new task."""
    from functools import partial

    from ptrun.importing.conll import Columns, one_file
    from ptrun.importing.spans import json_spans, label_studio, marks, of_spans

    marked = json_spans if given.kind == "spans" else label_studio
    read = of_spans(partial(marked, text=given.text or "text"))
    if given.kind == "conll":
        read = one_file(Columns(given.words or 1, given.tags or -1, given.roles))
    parts = {"train": given.train, "dev": given.dev, "test": given.test}
    found = marks(given.source, given.task, read, parts)
    return found.files, found.file, found.content


def _files(given: argparse.Namespace) -> "list[MadeFile]":
    """Return the files to write."""
    if given.kind == "lama":
        from ptrun.importing.published import lama

        return lama(given.source)
    if given.kind == "conll":
        from ptrun.importing.conll import Columns, conll

        columns = Columns(given.words or 1, given.tags or -1, given.roles)
        parts = {"train": given.train, "dev": given.dev, "test": given.test}
        return conll(given.source, given.task, columns, parts)
    if given.kind in _DOCUMENTS:
        from ptrun.importing.documents import documents

        return documents(given.kind, given.source)
    if given.kind == "squad":
        from ptrun.importing.published import squad

        return squad(given.source)
    from ptrun.importing.published import fewglue, glue, superglue

    readers = {"glue": glue, "superglue": superglue, "fewglue": fewglue}
    return readers[given.kind](given.source)


def data_parser() -> Parser:
    """Return the parser of `ptrun import data`."""
    made = Parser("import data", _DATA, DATA_EXAMPLES)
    made.epilog = f"{_DATA_KINDS}\n\n{made.epilog}"
    kinds = ["lama", "glue", "superglue", "fewglue", "squad", *_DOCUMENTS, *_TAGGED]
    made.add_argument("kind", choices=kinds, help="whose files they are")
    made.add_argument("source", type=Path, help="folder of the files, or a file")
    made.add_argument("--out", type=Path, required=True, metavar="DIR", help="the data_dir to be")
    tags = made.add_argument_group("conll, spans and label_studio")
    tags.add_argument("--task", metavar="NAME", help="the tagging task to write")
    for part in ("train", "dev", "test"):
        tags.add_argument(
            f"--{part}", type=Path, metavar="FILE", help="its file; conll: or a folder of *conll"
        )
    tags.add_argument("--text", metavar="KEY", help="not conll: field of the text; default text")
    conll = made.add_argument_group("conll", "columns count from 1, or from -1 at the end")
    conll.add_argument("--words", type=_column, metavar="N", help="column of words; default 1")
    conll.add_argument("--tags", type=_column, metavar="N", help="column of tags; default -1")
    conll.add_argument(
        "--roles", type=_columns, metavar="N:N", help="first and last column of roles in brackets"
    )
    return made


def _column(text: str) -> int:
    if not re.fullmatch(r"-?[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no column; they count from 1 or from -1")
    return int(text)


def _columns(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    if not colon:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST, such as 12:-2")
    return _column(first), _column(last)
