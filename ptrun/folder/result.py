"""`result.json`: written last and atomically, so a folder that has it is a finished run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, all_readable, readable, visible
from ptrun.files import from_json, read_text, write_text
from ptrun.folder import digest
from ptrun.folder.digest import is_number
from ptrun.types import RunResult

FINISHED, FAILED = "result.json", "failure.json"
RERUNS = "reruns"  # the name below `outputs` of the runs of `ptrun rerun`
_DATA = ("config", "files")
_NODES = ("method", "backbone", "task", "train")
_OF_TABLES = ("document", "warnings")  # of a manifest


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    write_text(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write(folder: Path, result: RunResult) -> None:
    """Write a finished run's `result.json`, or a failed one's `failure.json`, with its digests."""
    content = {**asdict(result), "files": digest.beside(folder)}
    name = FINISHED if result.status == "finished" else FAILED
    plain = json.loads(json.dumps(content))  # as it will be read: keys are text
    write_json(folder / name, digest.sealed(plain))
    if result.status == "finished":
        (folder / FAILED).unlink(missing_ok=True)


def read(folder: Path) -> RunResult | None:
    """Return the result of a run folder; None if the run has neither finished nor failed."""
    for name in (FINISHED, FAILED):
        if (folder / name).is_file():
            return _parse(folder / name)
    return None


def read_named(folder: Path) -> RunResult | None:
    """Return the result of the run that a folder is named after, as `read`."""
    done = read(folder)
    if done is not None and done.run_id != folder.name.partition("~")[0]:
        raise UserError(
            f"{folder}: holds the run {done.run_id}, not the one that its name says. Rename the "
            "folder, or delete it."
        )
    return done


def read_all(root: Path) -> tuple[dict[Path, RunResult], list[str]]:
    """Return the results of `run_folders` by folder, and a message for each damaged one.

    They are for tables: control characters are written out, equal parts of configurations are one
    object, and manifests are left out but for `document` and `warnings`.
    """
    results, damaged, same = dict[Path, RunResult](), list[str](), dict[str, Any]()

    def shared(part: Any) -> Any:
        text = json.dumps(part)
        if text not in same:
            same[text] = all_readable(part)
        return same[text]

    for folder in run_folders(root):
        try:
            done = read_named(folder)
        except UserError as error:
            damaged.append(str(error))
            continue
        if done is not None:
            config = {key: shared(part) for key, part in done.config.items()}
            manifest = {k: done.manifest[k] for k in _OF_TABLES if k in done.manifest}
            names = shared(done.names)
            results[folder] = replace(done, config=config, manifest=manifest, names=names)
    return results, damaged


def check_beside(done: RunResult, file: Path) -> None:
    """Check that a file is the one that the run wrote."""
    recorded = done.files.get(file.name) if done.status == "finished" else None
    if recorded is not None and recorded != digest.of_file(file):
        raise UserError(
            f"{file}: damaged or edited, or of another run (its digest is not the one in "
            f"{FINISHED}). Type the command of the run again with rerun=true."
        )


def run_folders(root: Path) -> list[Path]:
    """Return the run folders below a folder that finished or failed, in order of their paths.

    Folders that would count a seed twice are left out: those that `rerun=true` set aside (their
    names hold a `~`) and those of `ptrun rerun`.
    """
    folders = [folder for folder in ended_folders(root) if "~" not in folder.name]
    return [folder for folder in folders if RERUNS not in folder.relative_to(root).parts]


def ended_folders(root: Path) -> list[Path]:
    """Return all run folders below a folder that finished or failed, in order of their paths."""
    return sorted({file.parent for name in (FINISHED, FAILED) for file in root.rglob(name)})


def _parse(file: Path) -> RunResult:
    names = {field.name for field in fields(RunResult)}
    try:
        text = read_text(file)
        content = dict(from_json(text))
        recorded = content.pop(digest.DIGEST, None)
        if recorded not in (None, digest.of_plain(content)):
            raise ValueError("edited: its digest is another")
        if "\\" in text or not text.isascii() or "\x7f" in text:  # else no control character
            texts = {key: value for key, value in content.items() if key not in _DATA}
            content |= all_readable(texts)  # they are printed
        if content.get("metrics"):
            content["metrics"] = {"dev": {}, **content["metrics"]}
        done = RunResult(**{key: value for key, value in content.items() if key in names})
        _check_types(done)
    except (OSError, *digest.DAMAGES) as error:
        deep = "nested too deeply" if isinstance(error, RecursionError) else None
        reason = deep or getattr(error, "strerror", None) or error
        raise UserError(f"{file}: damaged ({reason}). Delete it to run again.") from error
    return done


def _check_types(done: RunResult) -> None:
    """Raise TypeError if a field that readers rely on has the wrong type."""
    parts = [*done.metrics.values(), *(done.config.get(key, {}) for key in _NODES)]
    parts += [done.by_label, *done.by_label.values()]
    records = (done.names, done.learned_parameters, done.manifest, done.config, done.files, *parts)
    texts = (done.run_id, done.group, done.metric, *done.names.values(), *done.files.values())
    typed = all(isinstance(part, Mapping) for part in records)
    typed = typed and isinstance(done.manifest.get("warnings", []), list)
    typed = typed and is_number(done.rate or 0.0)
    if not (typed and all(isinstance(text, str) for text in texts)):
        raise TypeError("a field has the wrong type")
    if not (isinstance(done.seed, int) and 0 <= done.seed < 2**32):
        raise TypeError(f"seed {str(done.seed)[:20]}")
    if not all(isinstance(count, int) for count in done.learned_parameters.values()):
        raise TypeError("learned_parameters has no numbers")
    if done.status == "failed":
        return
    if done.status != "finished":
        raise TypeError(f"status {done.status!r}")
    if "total" not in done.learned_parameters or "test" not in done.metrics:
        raise TypeError("learned_parameters has no total, or metrics has no test")
    for part, scores in done.metrics.items():
        score = scores.get(done.metric) if scores else 0.0  # a trial has none on test
        if not (is_number(score) or score != score):  # NaN is a score
            raise TypeError(f"metrics.{part} has no {done.metric}")


# The summary that a finished run prints.


def summary(result: RunResult, folder: Path) -> str:
    """Return the summary of a finished run; `folder` contains its run folder."""
    place = visible(str(folder / result.run_id))
    try:
        return readable(_summary(result, place))
    except digest.DAMAGES as error:
        raise UserError(f"{place}: damaged (its facts: {error}). {digest.AGAIN}") from error


def _summary(result: RunResult, folder: str) -> str:
    names, learned, facts = result.names, result.learned_parameters, result.manifest
    parts = ", ".join(f"{part} {learned[part]:,}" for part in ("prompt", "head", "backbone"))
    metric, test, dev = result.metric, result.metrics["test"], result.metrics["dev"]
    scored = (
        f"test {metric} {test[metric]:.2f}" if test else "a trial of a search, not scored on test"
    )
    others = " ".join(f"{name} {value:.2f}" for name, value in test.items() if name != metric)
    step = f" at step {facts['best_step']}" if "best_step" in facts else ""
    faster = facts.get("faster_precision")
    hint = f" ({faster} is faster here: hardware.precision={faster})" if faster else ""
    form = facts.get("quantization", "none")
    held = "" if form == "none" else f", {form}"
    per_second = facts["tokens_per_second"]  # 0 where nothing was trained since a resume
    speed = f" · {per_second:,.0f} tokens/s" if per_second else ""
    evaluated = facts.get("evaluation_seconds", 0.0) if "perplexity" in dev else 0.0
    speed += f" · {evaluated:.0f} s of evaluation" if evaluated else ""
    lowest = " (lowest dev loss)" if facts.get("selected_by") == "loss" else ""
    rate = f" · train.lr={result.rate:g}" if learned["total"] and result.rate else ""
    selected = f"dev {metric} {dev[metric]:.2f}{step}{lowest} of" if dev else "no dev,"
    return "\n".join(
        [
            f"{names['method']} · {names['backbone']} · {names['task']} · {names['setting']} · "
            f"seed {result.seed}",
            f"  {scored}  {others}".rstrip(),
            f"  {selected} {facts['steps']} steps{rate} · protocol {names['protocol']}",
            f"  trained {learned['total']:,} parameters ({parts}) · {facts['seconds']:.0f} s{speed}"
            f" · {facts['precision']}{held}{hint}",
            *(f"  warning: {text}" for text in facts.get("warnings", [])),
            f"  {folder}",
        ]
    )
