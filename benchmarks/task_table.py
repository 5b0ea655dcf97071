"""Describe the data sets: rows, classes, duplicates and overlaps of every file a task reads.

    python benchmarks/task_table.py --data DIR [--out benchmarks/results]

Reads every task of conf/task through its YAML: DIR/<folder>, and the folders of settings with their
own files (fewglue, idpg_lowres_K). Texts are equal if all fields match after NFKC, lower case and
collapsed white space. Writes tasks.md and tasks.json.
"""

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.task.protocol import Overlaps, compare
from ptrun.types import Example

SPLITS = {"train": "train", "validation": "dev", "test": "test"}
"""The split of each file in a setting's own folder."""
VARIANTS = ("fewglue", "idpg_lowres_100", "idpg_lowres_500", "idpg_lowres_1000")


def counts(values: Counter[Any]) -> str:
    """Return a histogram as text, most frequent first."""
    return ", ".join(f"{key} {count:,}" for key, count in values.most_common())


def chunks(examples: Sequence[Example]) -> str:
    """Return the number of words, and of chunks by type, in tagged sentences."""
    types = Counter(t[2:] for e in examples for t in e.target if t.startswith("B-"))
    return f"{sum(len(e.target) for e in examples):,} words; {counts(types)}"


def written(examples: Sequence[Example]) -> str:
    """Return how many references a text has."""
    counts = [len(example.target) for example in examples]
    return f"{sum(counts) / len(counts):.2f} references a text"


def spans(examples: Sequence[Example]) -> str:
    """Return the numbers of questions without an answer and with several."""
    sizes = [len(e.target) for e in examples]
    return f"no answer {sizes.count(0):,}, several {sum(s > 1 for s in sizes):,}"


def choices(examples: Sequence[Example]) -> str:
    """Return the positions of right options and the numbers of options."""
    right = Counter("ABCDEFGHIJKLMNOP"[e.target] for e in examples)
    sizes = Counter(len(e.fields["options"]) for e in examples)
    return f"right {counts(right)}; options {counts(sizes)}"


def numbers(examples: Sequence[Example]) -> str:
    """Return the range and mean of scores."""
    values = [e.target for e in examples]
    return f"{min(values):g} to {max(values):g}, mean {statistics.fmean(values):.3f}"


SUMMARIES: dict[str, Callable[[Sequence[Example]], str]] = {
    "classification": lambda examples: counts(Counter(e.target for e in examples)),
    "span_check": lambda examples: counts(Counter(e.target for e in examples)),
    "regression": numbers,
    "choice": choices,
    "tagging": chunks,
    "extraction": spans,
    "generation": written,
    "multispan": spans,
    "entity_choice": lambda es: (
        f"{statistics.fmean(len(e.fields['entities']) for e in es):.1f} "
        f"entities, several right {sum(len(e.target) > 1 for e in es):,}"
    ),
    "facts": lambda examples: f"{len({e.group for e in examples})} relations",
}


def read(config: dict[str, Any], data: Path, variant: str | None) -> dict[str, Any] | None:
    """Return the examples of each file and the kind of task; None if there is no file."""
    folder = config["source"].get("folder", config["name"])
    folder = f"{variant}/{folder.rsplit('/', 1)[-1]}" if variant else folder
    parts: dict[str, Sequence[Example]] = {}
    refused: dict[str, str] = {}
    kind = ""
    for split, part in SPLITS.items():
        if not list((data / folder).glob(f"{split}.jsonl*")):
            continue
        splits = {"train": split, "dev": None, "test": None}
        task = build("task", {**config, "splits": splits, "paper_splits": None}, str(data), variant)
        kind = task.kind
        try:
            parts[split] = task.load(part if variant else "train")
        except UserError as error:
            refused[split] = str(error).replace(f"{data}/", "").splitlines()[0]
    return {"folder": folder, "kind": kind, "parts": parts, "refused": refused} if kind else None


def found_in(data: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each task and the examples of its files, plain and in the folders of settings.

    `full` holds the task's plain files, which may share texts with those of a setting.
    """
    for name in options("task"):
        config = compose_run([f"task={name}"]).config["task"]
        if "source" not in config:  # csv reads the user's own files
            continue
        full: dict[str, Sequence[Example]] = {}
        for variant in () if "pocket" in config["source"] else (None, *VARIANTS):
            content = read(config, data, variant)
            if content is not None:
                yield name, {**content, "full": full}
                full = full or {f"full {split}": e for split, e in content["parts"].items()}


def rows(name: str, content: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one record per file."""
    parts, same = content["parts"], compare({**content["full"], **content["parts"]})
    made = [
        {
            "task": name,
            "file": f"{content['folder']}/{split}",
            "rows": len(examples),
            "summary": SUMMARIES[content["kind"]](examples),
            "duplicates": same.duplicates[split],
            "conflicts": same.conflicts[split],
            "shared": overlap_of(split, same),
        }
        for split, examples in parts.items()
    ]
    return made + [
        {"task": name, "file": f"{content['folder']}/{split}", "refused": reason}
        for split, reason in content["refused"].items()
    ]


def overlap_of(split: str, same: Overlaps) -> dict[str, dict[str, int]]:
    """Return the number of texts and rows that a file shares with each earlier file."""
    return {
        pair.split("/")[0]: {"texts": texts, "rows": same.leaked[pair]}
        for pair, texts in same.shared.items()
        if pair.endswith(f"/{split}")
    }


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """Return the records as a table."""
    lines = [
        "# The data sets: rows, classes, duplicates and overlaps",
        "",
        "Generated by `benchmarks/task_table.py`, which reads every file through its task's YAML.",
        "Duplicates: rows whose text occurs earlier in the file. Conflicts: texts with different",
        "targets. Shared: texts that occur in an earlier file of the same task, and in brackets",
        "this file's rows with them. `full` files are the task's own, not a setting's.",
        "",
        "| task | file | rows | classes or summary | duplicates | conflicts | shared |",
        "|---|---|---:|---|---:|---:|---|",
    ]
    return "\n".join([*lines, *(line(record) for record in records), ""])


def line(record: dict[str, Any]) -> str:
    """Return a record as a row of the table."""
    start = f"| {record['task']} | {record['file']} |"
    if "refused" in record:
        return f"{start} refused | {record['refused'].replace('|', '/')} | | | |"
    shared = ", ".join(f"{k} {v['texts']} ({v['rows']})" for k, v in record["shared"].items())
    figures = f"{record['duplicates']} | {record['conflicts']} | {shared}"
    return f"{start} {record['rows']:,} | {record['summary']} | {figures} |"


def main() -> None:
    """Read all data sets in --data and write both files."""
    from running import arguments

    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    records = [record for name, content in found_in(given.data) for record in rows(name, content)]
    (given.out / "tasks.md").write_text(markdown(records), encoding="utf-8")
    text = json.dumps(records, indent=1, ensure_ascii=False)
    (given.out / "tasks.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
