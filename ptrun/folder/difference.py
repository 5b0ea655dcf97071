"""The differences of two runs, and whether they should be equal, for `ptrun diff`."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

from ptrun.config.identity import flat
from ptrun.errors import UserError
from ptrun.files import opened_tensors
from ptrun.folder import result
from ptrun.folder.digest import DIGEST, PROMPT, combined, is_number, unpacked
from ptrun.folder.find import RunFolder
from ptrun.metrics import normalise

PREDICTIONS, METRICS = "predictions.jsonl", "metrics.jsonl"
_WIDTH = 72  # letters of a value
_SHOWN_ANSWERS, _SHOWN_NAMES = 3, 5


def difference(a: RunFolder, b: RunFolder) -> str:
    """Return the differences as lines; the last lines say whether the runs should be equal.

    Raises:
        UserError: a file is damaged.
    """
    facts = differing_facts(a, b)
    answers = compare_answers(a, b)
    tensors = differing_tensors(a, b)
    row = first_difference(a, b)
    lines = [f"A  {a.folder}", f"B  {b.folder}"]
    for section, group in groupby(facts, key=lambda fact: fact.section):
        lines.append(section)
        lines += _aligned([(fact.key, _short(fact.a), _short(fact.b)) for fact in group])
    told = _predictions(answers) if answers else [_lacks(a, b, PREDICTIONS)]
    lines += [*_metrics(a, b), "predictions", *(f"  {line}" for line in told)]

    # 1. What was compared, and whether it is equal.
    equal = {"metrics": a.result.metrics == b.result.metrics}
    if a.result.status != b.result.status:
        equal["status"] = False
    if answers is not None:
        equal["predictions"] = not (answers.differing or answers.targets or any(answers.only))
    if tensors is not None:
        equal["learned tensors"] = not tensors
    if row is not None:
        equal[f"rows of {METRICS}"] = not row

    # 2. Whether it should be, and what differs first.
    same_id, config = a.result.run_id == b.result.run_id, a.result.config
    should_be_equal = same_id or (bool(config) and config == b.result.config)
    configured = [fact.key for fact in facts if fact.section in _CONFIGURED]
    keys = _few(configured) if configured else "their ids"
    unequal = [name for name, is_equal in equal.items() if not is_equal]
    if not unequal:
        though = "" if should_be_equal else f", though they differ in {keys}"
        lines.append(f"equal to the last bit{though}: {', '.join(equal)}")
    elif should_be_equal:
        names = ", ".join(unequal)
        lines.append(f"SHOULD BE EQUAL AND ARE NOT: one configuration, but different {names}")
        if row:
            lines.append(f"  first difference in {METRICS}: {row}")
        elif row is not None:
            lines.append(f"  {METRICS} is equal: the runs differ only after training")
        if tensors:
            lines.append(f"  learned tensors that differ: {_few(tensors)}")
        causes = [f"{fact.section} {fact.key}" for fact in facts if fact.section in _BESIDE]
        outside = f"differences outside the configuration: {_few(causes)}"
        lines.append(
            f"  {outside if causes else 'no recorded difference outside the configuration'}"
        )
    else:
        differ = f"they differ in {keys}, so the results may differ"
        lines.append(f"different configurations: {differ}")
    if missing := [line for file in (PREDICTIONS, PROMPT, METRICS) if (line := _lacks(a, b, file))]:
        lines.append(f"not compared: {'; '.join(missing)}")
    return "\n".join(lines)


def _lacks(a: RunFolder, b: RunFolder, file: str) -> str:
    """Return which run lacks a file; empty if both have it."""
    without = [name for name, run in (("A", a), ("B", b)) if not (run.folder / file).is_file()]
    return f"no {file} in {' and '.join(without)}" if without else ""


def _few(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {rest} more" if rest > 0 else "")


# The recorded facts in which two runs differ, apart from their scores.

_SEEDS = ("seed", "data_seed")
_MACHINE = (
    *("device", "name", "threads", "precision", "quantization", "ranks", "model_parallel"),
    *("token_budget", "population", "checkpointing"),
)
_SELECTION = ("steps", "skipped_steps", "best_step", "candidates")
_START = ("start", "start_takes", "started_from", "task_version")
_IGNORED = ("path", "ids")
"""Paths may differ between machines; a hash stands for the ids."""
_CONFIGURED = ("configuration", "seeds", "data")
_BESIDE = ("names", "data", "backbone", "start", "versions", "code", "machine")


@dataclass(frozen=True)
class FactDifference:
    """One recorded value that differs; None if a run does not record it."""

    section: str
    key: str
    a: Any
    b: Any


def differing_facts(a: RunFolder, b: RunFolder) -> list[FactDifference]:
    """Return the differing facts, section by section, without metrics."""
    sections, others = _sections(a), _sections(b)
    return [
        FactDifference(name, key, facts.get(key), others[name].get(key))
        for name, facts in sections.items()
        for key in dict.fromkeys([*facts, *others[name]])
        if facts.get(key) != others[name].get(key)
    ]


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
    scores = [
        {
            f"{split} {name}": value
            for split in sorted(run.result.metrics, key=lambda split: split != "test")
            for name, value in sorted(
                run.result.metrics[split].items(), key=lambda m: m[0] != run.result.metric
            )
            if is_number(value)
        }
        for run in (a, b)
    ]
    rows = []
    for name in dict.fromkeys([*scores[0], *scores[1]]):
        x, y = (of_run.get(name) for of_run in scores)
        shown = ["-" if value is None else f"{value:.2f}" for value in (x, y)]
        gain = ""
        if x is not None and y is not None:
            gain = "equal" if x == y else f"{y - x:+.2f}"
            gain = f"{y - x:+.1e}" if gain in ("+0.00", "-0.00") else gain
        rows.append((name, shown[0], f"{shown[1]}  {gain}"))
    if rows:
        yield "metrics"
    yield from _aligned(rows)


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    width = max((len(key) for key, _, _ in rows), default=0)
    yield from (f"  {key:<{width}}  {x} → {y}".rstrip() for key, x, y in rows)


def _short(value: Any) -> str:
    text = "-" if value is None else str(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


# The predictions of two runs for the same examples: `predictions.jsonl`, by id.


@dataclass(frozen=True)
class Predictions:
    """The number of common examples and of different predictions.

    Args:
        both: examples in both runs.
        only: examples in A only and in B only.
        targets: common examples with another target in B.
        differing: common examples with different predictions.
        better: differing predictions by the run that is correct; for numbers, nearer the target.
        numbers: whether targets are numbers.
        shown: some differing predictions as text.
    """

    both: int
    only: tuple[int, int]
    targets: int
    differing: int
    better: Counter[str] = field(default_factory=Counter)
    numbers: bool = False
    shown: tuple[str, ...] = ()


def compare_answers(a: RunFolder, b: RunFolder) -> Predictions | None:
    """Return how the predictions differ; None if a run has none.

    Raises:
        UserError: a line is damaged.
    """
    rows, others = a.rows(PREDICTIONS), b.rows(PREDICTIONS)
    if rows is None or others is None:
        return None
    by_id, others_by_id = _by_id(rows), _by_id(others)
    both = {name: (row, others_by_id[name]) for name, row in by_id.items() if name in others_by_id}
    differing = {
        name: (x, y) for name, (x, y) in both.items() if x.get("prediction") != y.get("prediction")
    }
    numbers = any(isinstance(row.get("target"), float) for row, _ in both.values())
    better = _nearer if numbers else _correct
    return Predictions(
        both=len(both),
        only=(len(by_id) - len(both), len(others_by_id) - len(both)),
        targets=sum(x.get("target") != y.get("target") for x, y in both.values()),
        differing=len(differing),
        better=Counter(better(x, y) for x, y in differing.values()),
        numbers=numbers,
        shown=tuple(_text(name, *pair) for name, pair in islice(differing.items(), _SHOWN_ANSWERS)),
    )


def _by_id(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return rows by id; several data sets may repeat an id, which is then numbered."""
    seen: Counter[str] = Counter()
    by_id: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = str(row.get("id"))
        by_id[f"{name} ({seen[name] + 1})" if seen[name] else name] = row
        seen[name] += 1
    return by_id


def right(row: Mapping[str, Any]) -> bool:
    """Return whether a prediction is the target, or one of the reference texts of a question.

    Texts are normalised as in SQuAD's script. A list of spans must be complete.
    """
    prediction, target = row.get("prediction"), row.get("target")
    are_spans = isinstance(target, list) and all(isinstance(span, Mapping) for span in target)
    if not are_spans or not isinstance(prediction, str | list):
        return bool(prediction == target)
    texts = [normalise(str(span.get("text"))) for span in target or ()]
    if isinstance(prediction, str):
        return normalise(prediction) in (texts or [""])
    return sorted(normalise(str(text)) for text in prediction) == sorted(texts)


def _correct(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if right(row):
        return "both" if right(other) else "A"
    return "B" if right(other) else "neither"


def _nearer(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if not all(is_number(r[key]) for r in (row, other) for key in ("prediction", "target")):
        return "neither"
    a, b = (abs(r["prediction"] - r["target"]) for r in (row, other))
    return "neither" if a == b else "A" if a < b else "B"


def _text(name: str, row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    values = (row.get("prediction"), other.get("prediction"), row.get("target"))
    texts = [json.dumps(value, ensure_ascii=False) for value in values]
    x, y, target = (text if len(text) <= 60 else f"{text[:57]}..." for text in texts)
    return f"{name}: {x} → {y} (target {target})"


def _predictions(answers: Predictions) -> Iterator[str]:
    both = answers.both
    shared = f"{both:,} examples in both" if both else "no example in both"
    alone = [f"{n:,} only in {run}" for n, run in zip(answers.only, "AB", strict=True) if n]
    yield ", ".join([shared, *alone])
    if answers.targets:
        yield f"{answers.targets:,} have a different target in B"
    if not answers.differing:
        yield from ["all predictions are equal"] if both else []
        return
    in_one, in_none = (
        ("nearer", "equally near") if answers.numbers else ("correct only", "wrong in both")
    )
    counts = [f"{answers.better[run]:,} {in_one} in {run}" for run in "AB"]
    others = {"both": "correct in both, with different texts", "neither": in_none}
    counts += [f"{answers.better[k]:,} {words}" for k, words in others.items() if answers.better[k]]
    yield f"{answers.differing:,} predictions differ: {', '.join(counts)}"
    yield from (f"  {line}" for line in answers.shown)


# The first row of `metrics.jsonl` in which two runs differ.

_NAMING = ("part", "event", "step")
Rows = dict[tuple[str, ...], dict[str, Any]]


def first_difference(a: RunFolder, b: RunFolder) -> str | None:
    """Return the first difference, empty if there is none; None if a run has no journal.

    Times are not compared.

    Raises:
        UserError: a line is damaged.
    """
    rows, others = a.rows(METRICS), b.rows(METRICS)
    if rows is None or others is None:
        return None
    by_step, others_by_step = _by_step(rows), _by_step(others)
    for name in dict.fromkeys([*by_step, *others_by_step]):
        part, event, step = name
        place = f"step {step} ({event})" if step else event
        place += f" of {part}" if part else ""
        if name not in others_by_step or name not in by_step:
            return f"{place}: only {'A' if name in by_step else 'B'} has it"
        row, other = by_step[name], others_by_step[name]
        keys = [key for key in dict.fromkeys([*row, *other]) if row.get(key) != other.get(key)]
        if keys:
            changes = ", ".join(f"{key} {row.get(key)} → {other.get(key)}" for key in keys)
            return f"{place}: {changes}"
    return ""


def _by_step(rows: list[dict[str, Any]]) -> Rows:
    """Return rows by part, event and step; an interrupted run may have another order."""
    timeless = [{k: v for k, v in row.items() if "second" not in k} for row in rows]
    return {tuple(str(row.get(key) or "") for key in _NAMING): row for row in timeless}


# A bit-for-bit comparison of the learned tensors of two runs, without torch.


def differing_tensors(a: RunFolder, b: RunFolder) -> list[str] | None:
    """Return which learned tensors differ in type, shape or any bit; None if a file is missing.

    Raises:
        UserError: a file is damaged.
    """
    if _lacks(a, b, PROMPT):
        return None
    ours, others = _hashes(a), _hashes(b)
    return [name for name in sorted({*ours, *others}) if ours.get(name) != others.get(name)]


def _hashes(run: RunFolder) -> dict[str, str]:
    """Return the hash of type, shape and bytes of each tensor; one is in memory at a time."""
    file, advice = run.folder / PROMPT, "Type rerun=true to train again."
    try:
        result.check_beside(run.result, file)
        with opened_tensors(file) as tensors:
            kinds = {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
            if "BF16" in kinds:  # numpy has no such type
                from ptrun.folder.tensors import hashes

                return hashes(file, advice)
            header, digests = unpacked(tensors.metadata()), dict[str, str]()
            for name in tensors.keys():  # noqa: SIM118
                array = tensors.get_tensor(name)
                hashed = hashlib.sha256(f"torch.{array.dtype} {list(array.shape)}".encode())
                hashed.update(array)
                digests[name] = hashed.hexdigest()
        if header.pop(DIGEST, None) != combined(digests, header):
            raise ValueError("its digest is another")
    except ValueError as error:
        raise UserError(f"{file}: damaged ({error}). {advice}") from error
    return digests
