"""Ask the hub for format, files and size of every backbone and data set that ptrun names.

Only lists of files are asked for; nothing is downloaded. Each line says what a repository holds,
and below it what differs from what ptrun expects.
"""

import argparse
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ptrun.backbone.tokenizers import FILES
from ptrun.command.doctor import show
from ptrun.config import plain_yaml
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError
from ptrun.hub.download import chosen
from ptrun.hub.repository import CONVERTED, Repository, failure
from ptrun.planning.doctor import Check
from workshop import command

_DATA = re.compile(r".*\.(parquet|jsonl|json|csv|tsv|txt|arrow)(\.gz)?")
_BYTES = (4, 2)  # of a parameter
_TOLERANCE = 0.1  # heads and buffers beside the counted parameters
_AT_ONCE = 8

Sizes = Mapping[str, int | None]


def main(arguments: Sequence[str]) -> None:
    """Print a check for each preset of the hub: backbones first, then tasks.

    Raises:
        UserError: the hub may not be asked.
    """
    argparse.ArgumentParser("python -m workshop.presets", description=__doc__).parse_args(arguments)
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise UserError(
            "No repository was asked: the hub is off.\nWith a network, type "
            "HF_HUB_OFFLINE=0 python -m workshop.presets"
        )
    checks = _checks()
    show(checks)
    good = sum(check.state == "ok" for check in checks)
    print(f"\n{good} of {len(checks)} repositories are as ptrun expects them")


def _checks() -> list[Check]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        models = pool.map(_backbone, *zip(*presets("backbone").items(), strict=True))
        data = pool.map(_task, *zip(*presets("task").items(), strict=True))
        return [*models, *data]


def presets(group: str) -> dict[str, dict[str, Any]]:
    """Return ptrun's own options of a group that the hub holds."""
    files = sorted((conf_dir() / group).glob("*.yaml"))
    nodes = {file.stem: plain_yaml.read(file) for file in files}
    if group == "task":
        return {name: node for name, node in nodes.items() if node.get("source", {}).get("hub")}
    return {name: node for name, node in nodes.items() if node.get("hub")}


def _backbone(name: str, node: Mapping[str, Any]) -> Check:
    """Return what the repository of a backbone holds."""
    repository = Repository("model", node["hub"], node["revision"])
    sizes = repository.listing()
    if isinstance(sizes, Exception):
        return _no_answer(name, repository, sizes)
    weights = chosen(sizes)
    size = sum(sizes[file] or 0 for file in weights)
    pickled = bool(weights) and weights[0].endswith(".bin")
    tokenizer = [file for file in FILES if file in sizes]
    form = ".bin, converted once" if pickled else "safetensors" if weights else "no weights"
    parts = [f"{len(weights)} {form}", f"{size / 1e9:.2f} GB", " ".join(tokenizer)]
    wrong = [] if weights else ["no weights that ptrun reads"]
    wrong += [] if tokenizer else [f"no tokenizer, expected one of {', '.join(FILES)}"]
    wrong += _wrong_size(size, node.get("parameters"))
    snapshot = repository.snapshot
    existing = next(place for place in (snapshot, *snapshot.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    if (needed := size * (1 + pickled)) > free:
        wrong.append(f"{needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
    return _line(name, repository, parts, wrong)


def _task(name: str, node: Mapping[str, Any]) -> Check:
    """Return what the repository of a task holds."""
    source = node["source"]
    repository = Repository("dataset", source["hub"], source.get("revision"))
    sizes = repository.listing()
    if isinstance(sizes, Exception):
        return _no_answer(name, repository, sizes)
    files = [file for file in sizes if _DATA.fullmatch(file)]
    kinds = sorted({file.rpartition(".")[2] for file in files})
    parts = [f"{len(files)} files of data ({', '.join(kinds) or 'none'})"]
    script = f"{repository.name.rpartition('/')[2]}.py"
    wrong = [f"{script} is a script; {CONVERTED} is read"] if script in sizes else []
    wrong += [] if files or script in sizes else ["no data"]
    subset = source.get("subset")
    if subset and files and not any(subset in file for file in files):
        wrong.append(f"no file of subset {subset}")
    elsewhere = node.get("sources") or {}  # of parts
    here = {split for part, split in node["splits"].items() if part not in elsewhere}
    splits = {*here, *(node.get("paper_splits") or {}).values()} - {None}
    for split in sorted(splits if files else ()):
        if not any(split[:3] in file for file in files):  # val is a validation split
            wrong.append(f"no file of split {split}")
    if any("/partial-" in file for file in files):
        wrong.append("the hub has converted only a part")
    return _line(name, repository, parts, wrong)


def _wrong_size(size: int, parameters: int | None) -> list[str]:
    """Return what is wrong with the size of the weights of so many parameters."""
    if not size or not parameters:
        return []
    if any(abs(size / (parameters * each) - 1) < _TOLERANCE for each in _BYTES):
        return []
    expected = " or ".join(f"{parameters * each / 1e9:.2f}" for each in _BYTES)
    return [f"expected {expected} GB for {parameters:,} parameters"]


def _line(name: str, repository: Repository, parts: list[str], wrong: list[str]) -> Check:
    where = f"{repository.name}@{(repository.current or '')[:8]}"
    says = ", ".join([where, *(part for part in parts if part)])
    return Check("note" if wrong else "ok", name, says, "; ".join(wrong))


def _no_answer(name: str, repository: Repository, error: Exception) -> Check:
    says, _, remedy = failure(repository, error).partition("\n")
    return Check("bad", name, says, remedy)


if __name__ == "__main__":
    sys.exit(command.run(main, sys.argv[1:]))
