"""Every task of conf/task with a hub id loads from a repository of the form of its own one."""

import csv
import io
import json
import re
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
import yaml

from ptrun.config import build
from ptrun.config.paths import conf_dir
from ptrun.hub.repository import COMMIT
from tests.hub.test_presets import no_network  # noqa: F401
from tests.tiers import tiered

ROWS = Path(__file__).parents[1] / "data"
TASKS = {
    file.stem: node
    for file in sorted((conf_dir() / "task").glob("*.yaml"))
    if (node := yaml.safe_load(file.read_text("utf-8"))).get("source", {}).get("hub")
}
JSON_LINES = ("SetFit/",)  # splits as jsonl
CONVERTED = "refs/convert/parquet"
SUBSETS = {"eriktks/conll2003": "conll2003", "tner/ontonotes5": "ontonotes5"}  # there
HIDDEN = ("aps/super_glue", "nyu-mll/glue", "clue/clue")  # their test splits have no labels
NAMED = ("nyu-mll/glue", "aps/super_glue", "clue/clue", "CogComp/trec", "eriktks/conll2003")
NAMED += ("stanfordnlp/imdb", "fancyzhx/yelp_polarity", "Yelp/yelp_review_full")
CORE = ("boolq", "c3", "conll03", "dbpedia", "glue_rte", "quoref", "sst2", "tnews", "trec")


def base(node):
    written = node.get("written", {})
    own = [*node.get("fields", []), *node.get("extra", [])]
    named = [part for one in own for part in re.findall(r"{(\w+)", written.get(one, f"{{{one}}}"))]
    return dict.fromkeys(named)


def rows(name, node):
    """Return rows with the names of the task, labels as the files of its authors have them."""
    if (file := ROWS / f"{name}.jsonl").is_file():
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    if name == "race_high":
        return rows("race_middle", node)
    if name == "ontonotes5":
        tags = [node["tag_names"].index(tag) for tag in ("B-PERSON", "O")]
        return [{"tokens": ["Ann", "met"], "tags": tags} for _ in range(6)]
    if name == "squad_text":
        return rows("squad", node)
    if "target" in node:
        own = {key: f"some {key}" for key in (*node["fields"], node["target"])}
        return [own | {node["fields"][0]: f"number {i}"} for i in range(4)]
    labels = list(node["labels"].values())
    texts = base(node)
    return [
        {**{key: f"{key} {i}" for key in texts}, node["label"]: labels[i % len(labels)]}
        for i in range(2 * len(labels))
    ]


def hub_rows(name, node, hidden=False):
    """Return the rows as the repository has them, and their features."""
    made, key = rows(name, node), node.get("label")
    hub = node["source"]["hub"]
    names = list(node.get("values", {}).get(key, {}) or node.get("labels", {}))
    numbers = list(node.get("values", {}).get(key, {}).values() or node.get("labels", {}).values())
    if names and hub in NAMED:
        made = [row | {key: names[numbers.index(row[key])]} for row in made]
    if hidden and hub in HIDDEN and key:
        made = [row | {key: None if names else -1.0} for row in made]
    if hidden and name == "c3":
        made = [row | {"answer": ""} for row in made]
    for theirs, ours in node["source"].get("rename", {}).items():
        made = [{theirs: row[ours], **{k: v for k, v in row.items() if k != ours}} for row in made]
    table = datasets.Dataset.from_list(made)
    if names and hub in NAMED:
        table = table.cast_column(key, datasets.ClassLabel(names=names))
    if name == "conll03":
        tags = sorted({tag for row in made for tag in row["ner_tags"]})
        table = table.cast_column("ner_tags", datasets.List(datasets.ClassLabel(names=tags)))
    return table


def parquet(table):
    written = io.BytesIO()
    pq.write_table(table.data.table, written)
    return written.getvalue()


def files(name, node):
    """Return the files of the task's subset, for each revision, and the subset's data files."""
    source = node["source"]
    wanted = {*node["splits"].values(), *node.get("paper_splits", {}).values()} - {None}
    splits = sorted(wanted | ({"test"} if source["hub"] in HIDDEN else set()))
    tables = {one: hub_rows(name, node, one == "test" and one not in wanted) for one in splits}
    if source["hub"].startswith(JSON_LINES):
        lines = {f"{o}.jsonl": [json.dumps(row) for row in t] for o, t in tables.items()}
        return {file: "\n".join(own).encode() for file, own in lines.items()}
    if name == "dbpedia":
        short = {"validation": "val"}
        return {f"DBPEDIA_{short.get(o, o)}.csv": table(t) for o, t in tables.items()}
    if source.get("revision") == CONVERTED:
        folder = SUBSETS.get(source["hub"], "default")
        return {f"{folder}/{o}/0000.parquet": parquet(t) for o, t in tables.items()}
    folder = source.get("subset") or "data"
    return {f"{folder}/{o}-00000-of-00001.parquet": parquet(t) for o, t in tables.items()}


def table(rows_):
    written = io.StringIO()
    sheet = csv.DictWriter(written, rows_.column_names)
    sheet.writeheader()
    sheet.writerows(rows_)
    return written.getvalue().encode()


def card(subsets):
    configs = [
        {
            "config_name": one,
            "data_files": [
                {"split": split, "path": f"{one}/{split}-*"} for split in sorted(splits)
            ],
        }
        for one, splits in sorted(subsets.items())
    ]
    return f"---\n{yaml.safe_dump({'configs': configs})}---\n".encode()


def serve(hub, name):
    """Put the repository of a task on the hub, with all subsets that tasks read."""
    repository = TASKS[name]["source"]["hub"]
    revision = TASKS[name]["source"]["revision"]
    same = {k: n for k, n in TASKS.items() if n["source"]["hub"] == repository}
    whole = {path: own for k, n in same.items() for path, own in files(k, n).items()}
    subsets = {}
    for path in whole:
        if n := re.fullmatch(r"(\w+)/(\w+)-00000-of-00001\.parquet", path):
            subsets.setdefault(n[1], set()).add(n[2])
    if subsets and set(subsets) != {"data"}:
        whole["README.md"] = card(subsets)
    if revision == CONVERTED:
        script = {f"{repository.partition('/')[2]}.py": b"import os\n", "README.md": b"A script."}
        hub.push("datasets", repository, script)
        return hub.push("datasets", repository, whole, CONVERTED)
    commit = hub.push("datasets", repository, whole)
    if COMMIT.fullmatch(revision):
        hub.repos["datasets", repository].commits[revision] = whole
        return revision
    return commit


@pytest.mark.parametrize("name", tiered(TASKS, CORE.__contains__))
def test_a_task_loads_from_its_repository(hub, name):
    node, commits = TASKS[name], {(TASKS[name]["source"]["hub"], serve(hub, name))}
    if name == "metamathqa":
        commits.add(("openai/gsm8k", serve(hub, "gsm8k")))
    task = build.build("task", node, None, None)
    count = 0
    for paper in (False, True):
        for part in ("train", "dev", "test"):
            if task.has(part, paper=paper):
                examples = task.load(part, paper=paper)
                count += 1
                assert len(examples) >= 2 and all(e.target is not None for e in examples)
    assert count >= 2
    assert {(one.name, one.commit) for one in task.repositories} == commits


def test_the_number_of_tasks_on_the_hub():
    assert len(TASKS) == 46
