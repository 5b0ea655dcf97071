"""The differences of two runs, and whether they should be equal, for `ptrun diff`."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ptrun.config.identity import flat
from ptrun.folder.digest import PROMPT, is_number
from ptrun.folder.find import RunFolder

PREDICTIONS, METRICS = "predictions.jsonl", "metrics.jsonl"
_SHOWN_ANSWERS, _SHOWN_NAMES = 3, 5


def difference(a: RunFolder, b: RunFolder) -> str:
    """Return the differences as lines; the last lines say whether the runs should be equal."""
    facts: dict[str, list[tuple[str, Any, Any]]] = {}  # keys with the values of A and B, None: none
    ours, theirs, runs = _sections(a), _sections(b), {"A": a, "B": b}
    for section, values in ours.items():
        entries = dict.fromkeys([*values, *theirs[section]])
        pairs = [(name, values.get(name), theirs[section].get(name)) for name in entries]
        if changed := [(key, x, y) for key, x, y in pairs if x != y]:
            facts[section] = changed
    missing = {}
    for file in (PREDICTIONS, PROMPT, METRICS):
        if without := [name for name, run in runs.items() if not (run.folder / file).is_file()]:
            missing[file] = f"no {file} in {' and '.join(without)}"
    lines = [f"A  {a.folder}", f"B  {b.folder}"]
    for section, changes in facts.items():
        lines += [section, *_aligned([(key, _cut(x), _cut(y)) for key, x, y in changes])]
    lines += [*_metrics(a, b), "predictions"]

    # 1. What was compared, and whether it is equal.
    equal = {"metrics": a.result.metrics == b.result.metrics}
    if a.result.status != b.result.status:
        equal["status"] = False
    if PREDICTIONS in missing:
        lines.append(f"  {missing[PREDICTIONS]}")
    else:
        told, equal["predictions"] = _answers(a, b)
        lines += [f"  {line}" for line in told]
    tensors: list[str] = []
    if PROMPT not in missing:
        from ptrun.folder.tensors import hashes  # imports torch

        remedy = "Type rerun=true to train again."
        before, after = (hashes(run.folder / PROMPT, remedy) for run in (a, b))
        every = sorted({*before, *after})
        tensors = [name for name in every if before.get(name) != after.get(name)]
        equal["learned tensors"] = not tensors
    row = "" if METRICS in missing else first_difference(a, b)
    if METRICS not in missing:
        equal[f"rows of {METRICS}"] = not row

    # 2. Whether it should be, and what differs first.
    same_id, config = a.result.run_id == b.result.run_id, a.result.config
    should_be_equal = same_id or (bool(config) and config == b.result.config)
    configured = [key for section in _CONFIGURED for key, *_ in facts.get(section, ())]
    keys = _few(configured) if configured else "their ids"
    unequal = [name for name, is_equal in equal.items() if not is_equal]
    if not unequal:
        though = "" if should_be_equal else f", though they differ in {keys}"
        lines.append(f"equal to the last bit{though}: {', '.join(equal)}")
    elif not should_be_equal:
        lines.append(f"different configurations: they differ in {keys}, so the results may differ")
    else:
        names = ", ".join(unequal)
        lines.append(f"SHOULD BE EQUAL AND ARE NOT: one configuration, but different {names}")
        if row:
            lines.append(f"  first difference in {METRICS}: {row}")
        elif METRICS not in missing:
            lines.append(f"  {METRICS} is equal: the runs differ only after training")
        if tensors:
            lines.append(f"  learned tensors that differ: {_few(tensors)}")
        causes = [f"{section} {key}" for section in _BESIDE for key, *_ in facts.get(section, ())]
        outside = f"differences outside the configuration: {_few(causes)}"
        lines.append(
            f"  {outside if causes else 'no recorded difference outside the configuration'}"
        )
    if missing:
        lines.append(f"not compared: {'; '.join(missing.values())}")
    return "\n".join(lines)


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    width = max((len(key) for key, _, _ in rows), default=0)
    yield from (f"  {key:<{width}}  {x} → {y}".rstrip() for key, x, y in rows)


def _cut(value: Any, width: int = 72) -> str:
    """Return a value as text of at most `width` letters."""
    text = "-" if value is None else str(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


# The recorded facts in which two runs differ, apart from their scores.

_SEEDS = ("seed", "data_seed")
_MACHINE = (
    *("device", "name", "threads", "precision", "quantization", "ranks", "model_parallel"),
    *("token_budget", "population", "checkpointing"),
)
_SELECTION = ("steps", "skipped_steps", "best_step", "candidates")
_START = ("start", "start_takes", "started_from", "continued_from", "task_version")
_IGNORED = ("path", "ids")
"""Paths may differ between machines; a hash stands for the ids."""
_CONFIGURED = ("configuration", "seeds", "data")
_BESIDE = ("names", "data", "backbone", "start", "versions", "code", "machine")


def _sections(run: RunFolder) -> dict[str, dict[str, Any]]:
    """Return the facts of a result without its metrics, by section and path, in printing order."""
    config, manifest = flat(run.result.config), run.result.manifest
    seeds = {key: config.pop(key) for key in _SEEDS if key in config}
    config.pop("data", None)  # part of the data section
    parts = {name: part for name, part in run.facts("parts").items() if isinstance(part, Mapping)}
    selection = {key: manifest.get(key) for key in _SELECTION}
    selection |= {f"best_step of {name}": part.get("best_step") for name, part in parts.items()}
    data, backbone = (
        {key: v for key, v in flat(run.facts(name)).items() if key.split(".")[-1] not in _IGNORED}
        for name in ("data", "backbone")
    )
    return {
        "names": dict(run.result.names),
        "configuration": config,
        "seeds": seeds,
        "data": data,
        "backbone": backbone,
        "start": flat({key: manifest.get(key) for key in _START}),
        "versions": run.facts("versions"),
        "code": {
            "commit": manifest.get("git_commit"),
            "uncommitted changes": manifest.get("git_dirty"),
        },
        "machine": {key: manifest.get(key) for key in _MACHINE},
        "learned": dict(run.result.learned_parameters),
        "selection": selection,
        "outcome": {"status": run.result.status, "reason": run.result.reason},
    }


def _metrics(a: RunFolder, b: RunFolder) -> Iterator[str]:
    """Yield all metrics, the test split and the selecting metric first."""
    rows = []
    for split in dict.fromkeys(["test", *a.result.metrics, *b.result.metrics]):
        scores = [run.result.metrics.get(split, {}) for run in (a, b)]
        for name in dict.fromkeys([a.result.metric, *scores[0], *scores[1]]):
            x, y = (each[name] if is_number(each.get(name)) else None for each in scores)
            if x is None and y is None:
                continue
            gain = ""
            if x is not None and y is not None:
                gain = "equal" if x == y else f"{y - x:+.2f}"
                gain = f"{y - x:+.1e}" if gain in ("+0.00", "-0.00") else gain
            before, after = ("-" if value is None else f"{value:.2f}" for value in (x, y))
            rows.append((f"{split} {name}", before, f"{after}  {gain}"))
    if rows:
        yield "metrics"
    yield from _aligned(rows)


# The predictions of two runs for the same examples: `predictions.jsonl`, by id.


def _answers(a: RunFolder, b: RunFolder) -> tuple[list[str], bool]:
    """Return what is told of the predictions, and whether they are equal."""
    rows, others = _by_id(a.rows(PREDICTIONS)), _by_id(b.rows(PREDICTIONS))
    both = {name: (row, others[name]) for name, row in rows.items() if name in others}
    alone = [len(rows) - len(both), len(others) - len(both)]
    targets = sum(x.get("target") != y.get("target") for x, y in both.values())
    differing = {
        name: (x.get("prediction"), y.get("prediction"), x.get("target"))
        for name, (x, y) in both.items()
        if x.get("prediction") != y.get("prediction")
    }
    shared = f"{len(both):,} examples in both" if both else "no example in both"
    in_one = [f"{n:,} only in {run}" for n, run in zip(alone, "AB", strict=True) if n]
    told = [", ".join([shared, *in_one])]
    if targets:
        told.append(f"{targets:,} have a different target in B")
    if differing:
        told.append(f"{len(differing):,} predictions differ")
        for name, values in [*differing.items()][:_SHOWN_ANSWERS]:
            x, y, target = (_cut(json.dumps(value, ensure_ascii=False), 60) for value in values)
            told.append(f"  {name}: {x} → {y} (target {target})")
    elif both:
        told.append("all predictions are equal")
    return told, not (differing or targets or any(alone))


def _by_id(rows: list[dict[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """Return rows by id; several data sets may repeat an id, which is then numbered."""
    seen: Counter[str] = Counter()
    by_id: dict[str, dict[str, Any]] = {}
    for row in rows or ():
        name = str(row.get("id"))
        by_id[f"{name} ({seen[name] + 1})" if seen[name] else name] = row
        seen[name] += 1
    return by_id


_NAMING = ("part", "event", "step")


def first_difference(a: RunFolder, b: RunFolder) -> str:
    """Return the first difference of two journals; empty if there is none.

    Times are not compared, nor the order of rows: an interrupted run may have another.
    """
    journals: list[dict[tuple[str, ...], dict[str, Any]]] = []
    for run in (a, b):
        rows = ({k: v for k, v in r.items() if "second" not in k} for r in run.rows(METRICS) or ())
        journals.append({tuple(str(row.get(k) or "") for k in _NAMING): row for row in rows})
    for part, event, step in dict.fromkeys([*journals[0], *journals[1]]):
        row, other = (journal.get((part, event, step)) for journal in journals)
        place = f"step {step} ({event})" if step else event
        place += f" of {part}" if part else ""
        if row is None or other is None:
            return f"{place}: only {'B' if row is None else 'A'} has it"
        keys = [key for key in dict.fromkeys([*row, *other]) if row.get(key) != other.get(key)]
        if keys:
            changes = ", ".join(f"{key} {row.get(key)} → {other.get(key)}" for key in keys)
            return f"{place}: {changes}"
    return ""
