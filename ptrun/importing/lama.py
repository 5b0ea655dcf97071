"""LAMA's T-REx facts as P-tuning releases them (zenodo 5578210, `P-tune_LAMA.tar.gz`).

The folder has `relations.jsonl` (templates), `fact-retrieval/original/P*/{train,dev,test}.jsonl`
(AutoPrompt's splits) and the words of each model, `29k-vocab.json` and `34k-vocab.json`. If they
are put beside them, OptiPrompt's `{LPAQA,AutoPrompt}_relations.jsonl` are read too.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ptrun.errors import UserError, shown
from ptrun.importing.data import MadeFile, Record, rows
from ptrun.task.facts import word_list
from ptrun.task.lines import json_file

FOLDER = "lama_trex"
COMMON, WORDS = "29k-vocab.json", ("29k-vocab.json", "34k-vocab.json")
_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_FACTS = ("fact-retrieval/original", "original", "original_rob", ".")
_SEARCHED = {"lpaqa": "LPAQA_relations.jsonl", "autoprompt": "AutoPrompt_relations.jsonl"}


def lama(source: Path) -> list[MadeFile]:
    """Return the files of `task=lama`: facts, searched templates, lists of words.

    A fact is in the common vocabulary if `29k-vocab.json` lists its object for any model.

    Raises:
        UserError: no relation is there, or a relation lacks a split or a template.
    """
    templates = _templates(source / "relations.jsonl")
    relations = _relations(source)
    common = _common(source / COMMON)
    made = []
    for theirs, ours in _SPLITS.items():
        files = [folder / f"{theirs}.jsonl" for folder in relations]
        if absent := next((file for file in files if not file.is_file()), None):
            raise UserError(f"{absent}: no such file; each relation needs {', '.join(_SPLITS)}.")
        made.append(MadeFile(FOLDER, f"{ours}.jsonl", files, _facts(files, templates, common)))
    return [*made, *_searched(source), *_lists(source)]


def _relations(source: Path) -> list[Path]:
    """Return the folders of the relations, by number."""
    for place in _FACTS:
        found = [f for f in (source / place).glob("P*") if re.fullmatch(r"P\d+", f.name)]
        if found:
            return sorted(found, key=lambda folder: int(folder.name[1:]))
    raise UserError(f"{source}: no folders P17, P19, ... there or in {', '.join(_FACTS[:-1])}.")


def _templates(file: Path) -> dict[str, str]:
    """Return the template of each relation."""
    if not file.is_file():
        raise UserError(f"{file}: no such file; it has the templates of LAMA's relations.")
    templates = {}
    for row in rows(file):
        text = row.text("template")
        if "[X]" not in text or "[Y]" not in text:
            raise UserError(f"{row.where}: template {shown(text)} must contain [X] and [Y].")
        templates[row.text("relation")] = text
    return templates


def _common(file: Path) -> set[str] | None:
    """Return the words of all lists of a file, or None if it is absent."""
    if not file.is_file():
        return None
    return {word for model in json_file(file) for word in word_list(file, model)}


def _facts(
    files: list[Path], templates: dict[str, str], common: set[str] | None
) -> Iterator[Record]:
    for file in files:
        for row in rows(file):
            relation, answer = row.text("predicate_id"), row.text("obj_label")
            if relation != file.parent.name:
                raise UserError(f"{row.where}: predicate_id is {shown(relation)}, not its folder.")
            if relation not in templates:
                raise UserError(f"{row.where}: relations.jsonl has no template of {relation}.")
            fact = {
                "predicate_id": relation,
                "sub_label": row.text("sub_label"),
                "obj_label": answer,
                "template": templates[relation],
            }
            yield fact if common is None else {**fact, "obj_in_common_vocab": answer in common}


def _searched(source: Path) -> list[MadeFile]:
    """Return the file of searched templates, if any were put beside the relations."""
    files = {kind: source / name for kind, name in _SEARCHED.items()}
    here = {kind: file for kind, file in files.items() if file.is_file()}
    if not here:
        return []
    found: dict[str, dict[str, str]] = {}
    for kind, file in here.items():
        for relation, text in _templates(file).items():
            found.setdefault(relation, {"predicate_id": relation})[kind] = text
    return [MadeFile(FOLDER, "templates.jsonl", list(here.values()), found.values())]


def _lists(source: Path) -> list[MadeFile]:
    files = [source / name for name in WORDS if (source / name).is_file()]
    return [MadeFile(FOLDER, file.name, [file], [json_file(file)]) for file in files]
