"""Data sets in the layouts of their authors, written from rows as ptrun's tasks read them."""

import gzip
import json

from ptrun.command.import_ import main
from ptrun.config.build import build
from ptrun.config.compose import compose_run

TITLES = {"boolq": "BoolQ", "cb": "CB", "copa": "COPA", "multirc": "MultiRC", "record": "ReCoRD"}
TITLES |= {"rte": "RTE", "wic": "WiC", "wsc": "WSC"}


def dump(file, rows):
    """Write rows as JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def load(file):
    """Return the rows of a file of JSON lines, plain or compressed."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def imported(kind, source, out, *options):
    """Import data by the command."""
    main(["data", kind, str(source), "--out", str(out), *options])
    return out


def task(name, folder, *overrides, variant=None):
    """Return a task over a folder of data."""
    node = compose_run([f"task={name}", *overrides]).config["task"]
    return build("task", node, str(folder), variant)


def facts(folder, rows):
    """Write facts by split as P-tuning releases them; `rows` has a list by split."""
    relations = {row["predicate_id"]: row["template"] for own in rows.values() for row in own}
    for split, own in rows.items():
        for relation in relations:
            told = [_fact(row) for row in own if row["predicate_id"] == relation]
            dump(folder / "fact-retrieval/original" / relation / f"{split}.jsonl", told)
    dump(
        folder / "relations.jsonl",
        [{"relation": key, "template": text, "type": "N-1"} for key, text in relations.items()],
    )


def _fact(row):
    kept = {key: row[key] for key in ("predicate_id", "sub_label", "obj_label")}
    return {**kept, "uuid": "x", "sub_uri": "Q1", "obj_uri": "Q2", "evidences": [{"masked": "x"}]}
