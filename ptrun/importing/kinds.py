"""The kinds of files that `ptrun import` reads. Each is a command: `ptrun import KIND`.

A package adds one with an entry point of the group `ptrun.imports`, whose value is an object with
`PARSER` and `main`: a `Checkpoint`, a `Data`, or a module.
"""

import argparse
import re
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from ptrun.config.arguments import Parser
from ptrun.errors import UserError


class _Kind:
    """A kind of import, by the `MODULE:FUNCTION` that reads it; options are those of argparse."""

    def __init__(
        self, name: str, function: str, description: str, examples: str, **options: dict[str, Any]
    ):
        self.name, self.function = name, function
        self.PARSER = Parser(f"import {name}", description, examples)
        self.PARSER.add_argument("source", type=Path, help="the files, a folder or a file")
        self.PARSER.add_argument(
            "--out", type=Path, required=True, metavar="DIR", help="folder to write"
        )
        for option, keywords in options.items():
            self.PARSER.add_argument(f"--{option}", **keywords)

    def read(self, options: dict[str, Any], *beside: Any) -> Any:
        """Return what the function returns for the options that were typed."""
        module, _, function = self.function.partition(":")
        return getattr(import_module(module), function)(*beside, **options)


class Checkpoint(_Kind):
    """A kind of checkpoint: `function(source, out, dtype=..., ...)` returns an `Imported`."""

    def __init__(self, *texts: Any, **options: Any):
        dtype = {"choices": ["fp16", "bf16", "fp32"], "help": "default: as saved"}
        super().__init__(*texts, dtype=dtype, **options)

    def main(self, arguments: Sequence[str]) -> None:
        """Write the folder of a checkpoint."""
        print(self.read(vars(self.PARSER.parse(arguments))).line())


class Data(_Kind):
    """A kind of data: `function(source, ...)` returns its files.

    If the task may be new, it returns a pair: the files, and the text of the options by their file.
    The source is what it `accepts`: "file", "folder" or "file or folder".
    """

    def __init__(self, *texts: Any, accepts: str = "folder", **options: Any):
        encoding = {"metavar": "NAME", "help": "of its texts, if not UTF-8: cp1252, gb18030, ..."}
        super().__init__(*texts, **options, encoding=encoding)
        self.accepts = accepts

    def main(self, arguments: Sequence[str]) -> None:
        """Write the files of a data set."""
        options = vars(self.PARSER.parse(arguments))
        out, source = options.pop("out"), options["source"]
        if not (source.is_file() and "file" in self.accepts) and not (
            source.is_dir() and "folder" in self.accepts
        ):
            raise UserError(f"{source}: no such {self.accepts}; unpack an archive first.")
        from ptrun.config.trust import new_options
        from ptrun.importing.data import write
        from ptrun.task.lines import ENCODING
        from ptrun.task.table import Given

        encoding = ENCODING.set(Given(encoding=options.pop("encoding")).encoding)
        try:
            files = self.read(options)
            files, tasks = files if isinstance(files, tuple) else (files, {})
            with new_options() if tasks else nullcontext():
                for line in write(out, files, tasks):
                    print(line)
                for file in tasks:
                    print(f"{file}: options of task={file.stem}")
        finally:
            ENCODING.reset(encoding)


class Tags(Data):
    """A kind of words with tags: `function(file, account, ...)` yields the `Words` of a file.

    `files` is a pattern of the names of files in a folder.
    """

    def __init__(self, *texts: Any, files: str = "*", **options: Any):
        super().__init__(*texts, **{"accepts": "file or folder", **options, **_TAGGING})
        self.files = files

    def read(self, options: dict[str, Any], *_: Any) -> Any:
        """Return the files of the task, and the text of its options if it is new."""
        from ptrun.importing.data import tagging_files

        task = {name: options.pop(name) for name in ("source", *_TAGGING)}
        read = partial(super().read, options)
        return tagging_files(**task, read=read, origin=self.name, files=self.files)


def _column(text: str) -> int | str:
    """Return the number of a column, or its name."""
    return int(text) if re.fullmatch(r"-?[1-9]\d{0,8}", text) else text


def _columns(text: str) -> tuple[int, int]:
    if not (match := re.fullmatch(r"(-?[1-9]\d{0,8}):(-?[1-9]\d{0,8})", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST, such as 12:-2")
    return int(match[1]), int(match[2])


_TAGGING: dict[str, dict[str, Any]] = {
    "task": {"required": True, "metavar": "NAME", "help": "the tagging task to write"},
    **{
        part: {"type": Path, "metavar": "FILE", "help": f"the file or folder of {part}"}
        for part in ("train", "dev", "test")
    },
}
_DIVIDED = """

A folder has files of names with train, dev (valid, testa), test (testb). One file is divided into
8 : 1 : 1. If --task is new, its options are written to ./ptrun_conf/task/NAME.yaml."""
_TEXT = {"default": "text", "metavar": "KEY", "help": "field of the text; default text"}
_DOCUMENTS = """

Each document gets a folder, document.txt and questions.jsonl, for method=cartridge."""
_OF_DOCUMENTS = {
    "longhealth": ("benchmark_v5.json", "LongHealth's benchmark_v5.json: letters about patients."),
    "qasper": ("qasper-dev-v0.3.json", "QASPER's qasper-dev-v0.3.json: papers."),
    "squad_articles": ("dev-v1.1.json", "SQuAD's JSON: its articles as documents."),
}

_KINDS: tuple[Checkpoint | Data, ...] = (
    Checkpoint(
        "hf",
        "ptrun.importing.hf:import_hf",
        """A model of transformers: a folder or a hub id.

It has config.json and pytorch_model*.bin or *.safetensors. A folder of this name wins over an
id.""",
        "  ptrun import hf google/mt5-xxl --out DIR --dtype bf16     a model with .bin files alone",
        revision={
            "default": "main",
            "metavar": "NAME",
            "help": "branch, tag or commit of a hub id; default main",
        },
    ),
    *(
        Data(
            name,
            f"ptrun.importing.documents:{name}",
            f"{what}{_DOCUMENTS}",
            f"  ptrun import {name} {file} --out DIR",
            accepts="file",
        )
        for name, (file, what) in _OF_DOCUMENTS.items()
    ),
    Tags(
        "conll",
        "ptrun.importing.conll:conll",
        f"""Files with one word a line: CoNLL, any IOB columns, CoNLL-U, a CSV.

Tags that mark no spans, such as parts of speech, become labels of words. The first line of a CSV
names its columns; --sentence, or a blank line, says where a sentence begins. Lines `INDEX WORDS |||
TAGS` are P-tuning v2's roles. Columns count from 1, or from -1 at the end.{_DIVIDED}""",
        """\
  ptrun import conll CoNLL03 --task conll03 --out DIR           words first, tags last
  ptrun import conll ud.conllu --task my_pos --out DIR          words and UPOS of CoNLL-U
  ptrun import conll ner.csv --words Word --tags Tag --sentence 1 --task my_ner --out DIR
  ptrun import conll CoNLL05 --task conll05_wsj --test CoNLL05/conll05.test.wsj.txt --out DIR
  ptrun import conll conll-2012/v4/data --task conll12 --words 4 --roles 12:-2 --out DIR""",
        files="*conll*",
        words={"type": _column, "metavar": "COLUMN", "help": "of words; default 1, in CoNLL-U 2"},
        tags={"type": _column, "metavar": "COLUMN", "help": "of tags; default -1, in CoNLL-U 4"},
        sentence={"type": _column, "metavar": "COLUMN", "help": "of a CSV: what begins a sentence"},
        quoting={"choices": ["none", "cells", "backslash"], "help": "of a CSV: see task.quoting"},
        roles={"type": _columns, "metavar": "N:N", "help": "first and last of roles in brackets"},
    ),
    Tags(
        "spans",
        "ptrun.importing.spans:json_spans",
        f"""JSON with marked spans, as Prodigy, doccano and spaCy write it.

A line is {{"text": ..., "spans": [{{"start": 0, "end": 3, "label": "PER"}}]}}, or a list of a text
and such an object. The key may be "entities", "label" or "labels", a span [0, 3, "PER"], with
start_offset and end_offset (doccano); end is the character after the last.{_DIVIDED}""",
        "  ptrun import spans marked.jsonl --task my_names --out DIR     a new task",
        text=_TEXT,
    ),
    Tags(
        "brat",
        "ptrun.importing.brat:brat",
        f"""A folder of brat: each a.ann with its a.txt, also in its folders.

A line of a text is a sentence; one that ends inside a span goes on with the next.{_DIVIDED}""",
        "  ptrun import brat corpus --task my_names --out DIR",
        files="*.ann",
        accepts="folder",
    ),
    Tags(
        "webanno",
        "ptrun.importing.webanno:webanno",
        f"""WebAnno TSV 3, which INCEpTION exports too.

A sentence that ends inside a span goes on with the next.{_DIVIDED}""",
        "  ptrun import webanno curation --task my_names --out DIR",
        files="*.tsv",
        layer={"metavar": "NAME", "help": "one of several layers, such as NamedEntity"},
        feature={"metavar": "NAME", "help": "one of several features, such as value"},
    ),
    Tags(
        "spacy",
        "ptrun.importing.spacy:spacy",
        f"spaCy's .spacy (if spaCy is installed), .iob, and JSON of version 2.{_DIVIDED}",
        "  ptrun import spacy train.spacy --task my_names --out DIR",
        text=_TEXT,
    ),
    Tags(
        "label_studio",
        "ptrun.importing.spans:label_studio",
        f"The JSON export of Label Studio with labels of parts of texts.{_DIVIDED}",
        "  ptrun import label_studio export.json --task my_names --out DIR",
        text=_TEXT,
    ),
)
KINDS = {kind.name: kind for kind in _KINDS}
"""The kinds of ptrun itself, by name."""
