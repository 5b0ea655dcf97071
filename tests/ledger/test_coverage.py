"""Every published number has a cell, with the value that is printed."""

import yaml

NAMES = {"ptuning_v2_readme": None}  # the authors' own reruns stand beside tables 2 and 3
ELSEWHERE = {"ppt": {"unified_layout": "ppt/unified_layout"}}


def published(shared):
    folder = shared / "specs" / "tables"
    for file in sorted(folder.glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        yield file.stem, f"{content['paper']}/{content['table']}", content["rows"]


def place(row):
    return tuple(str(row[key]) for key in ("backbone", "method", "setting", "task", "metric"))
