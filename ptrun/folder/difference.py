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


@dataclass(frozen=True)
class FactDifference:
    """One recorded value that differs; None if a run does not record it."""

    section: str
    key: str
    old: Any
    new: Any


def differing(a: RunFolder, b: RunFolder) -> list[FactDifference]:
    """Return the differing facts, section by section, without metrics."""
    own, other = sections(a), sections(b)
    return [
        FactDifference(name, key, own[name].get(key), other[name].get(key))
        for name in own
        for key in dict.fromkeys([*own[name], *other[name]])
        if own[name].get(key) != other[name].get(key)
    ]


def sections(run: RunFolder) -> dict[str, dict[str, Any]]:
    """Return the facts of a result without its metrics, by section and path, in printing order."""
    config = flat(run.result.config)
    seeds = {key: config.pop(key) for key in _SEEDS if key in config}
    config.pop("data", None)  # part of the data section
    manifest = run.result.manifest
    code = {"commit": manifest.get("git_commit"), "uncommitted changes": manifest.get("git_dirty")}
    return {
        "names": dict(run.result.names),
        "configuration": config,
        "seeds": seeds,
        "data": _known(run.facts("data")),
        "backbone": _known(run.facts("backbone")),
        "start": flat(_picked(manifest, _START)),
        "versions": run.facts("versions"),
        "code": code,
        "machine": _picked(manifest, _MACHINE),
        "learned": dict(run.result.learned_parameters),
        "selection": {**_picked(manifest, _SELECTION), **_parts(run)},
        "outcome": {"status": run.result.status, "reason": run.result.reason},
    }


def same_configuration(a: RunFolder, b: RunFolder) -> bool:
    """Return whether two runs have one configuration, so that their results should be equal."""
    own, other = a.result.config, b.result.config
    return a.result.run_id == b.result.run_id or (bool(own) and own == other)


def _picked(manifest: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: manifest.get(key) for key in keys}


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: v for key, v in flat(facts).items() if key.split(".")[-1] not in _IGNORED}


def _parts(run: RunFolder) -> dict[str, Any]:
    """Return the selected step of each part of a run that has several."""
    parts = {name: own for name, own in run.facts("parts").items() if isinstance(own, Mapping)}
    return {f"best_step of {name}": own.get("best_step") for name, own in parts.items()}


# The predictions of two runs for the same examples: `predictions.jsonl`, by id.

PREDICTIONS = "predictions.jsonl"
_SHOWN_ANSWERS = 3


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

    def equal(self) -> bool:
        """Return whether examples, targets and predictions are equal."""
        return not (self.differing or self.targets or any(self.only))


def compare_answers(a: RunFolder, b: RunFolder) -> Predictions | None:
    """Return how the predictions differ; None if a run has none.

    Raises:
        UserError: a line is damaged.
    """
    files = a.rows(PREDICTIONS), b.rows(PREDICTIONS)
    if files[0] is None or files[1] is None:
        return None
    own, other = _by_id(files[0]), _by_id(files[1])
    both = {name: (row, other[name]) for name, row in own.items() if name in other}
    differing = {
        name: (x, y) for name, (x, y) in both.items() if x.get("prediction") != y.get("prediction")
    }
    numbers = any(isinstance(row.get("target"), float) for row, _ in both.values())
    better = _nearer if numbers else _correct
    return Predictions(
        both=len(both),
        only=(len(own) - len(both), len(other) - len(both)),
        targets=sum(x.get("target") != y.get("target") for x, y in both.values()),
        differing=len(differing),
        better=Counter(better(x, y) for x, y in differing.values()),
        numbers=numbers,
        shown=tuple(_text(name, *pair) for name, pair in islice(differing.items(), _SHOWN_ANSWERS)),
    )


def _by_id(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return rows by id; several data sets may repeat an id, which is then numbered."""
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = str(row.get("id"))
        found[f"{name} ({seen[name] + 1})" if seen[name] else name] = row
        seen[name] += 1
    return found


def right(row: Mapping[str, Any]) -> bool:
    """Return whether a prediction is the target, or one of the reference texts of a question.

    Texts are normalised as in SQuAD's script. A list of spans must be complete.
    """
    prediction, target = row.get("prediction"), row.get("target")
    spans = isinstance(target, list) and all(isinstance(one, Mapping) for one in target)
    if not spans or not isinstance(prediction, str | list):
        return bool(prediction == target)
    texts = [normalise(str(one.get("text"))) for one in target or ()]
    if isinstance(prediction, str):
        return normalise(prediction) in (texts or [""])
    return sorted(normalise(str(one)) for one in prediction) == sorted(texts)


def _correct(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if right(own):
        return "both" if right(other) else "A"
    return "B" if right(other) else "neither"


def _nearer(own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if not all(is_number(row[key]) for row in (own, other) for key in ("prediction", "target")):
        return "neither"
    a, b = (abs(row["prediction"] - row["target"]) for row in (own, other))
    return "neither" if a == b else "A" if a < b else "B"


def _text(name: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    texts = [_short_answer(value) for value in (own.get("prediction"), other.get("prediction"))]
    return f"{name}: {texts[0]} → {texts[1]} (target {_short_answer(own.get('target'))})"


def _short_answer(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


# The text that `ptrun diff` prints: facts, metrics, predictions, and whether they may differ.

_WIDTH = 72


def difference(a: RunFolder, b: RunFolder) -> str:
    """Return the differences as lines; the last lines say whether the runs should be equal."""
    facts, found = differing(a, b), measured(a, b)
    lines = [f"A  {a.folder}", f"B  {b.folder}", *_facts(facts), *_metrics(a, b)]
    predictions = found.predictions
    compared = _predictions(predictions) if predictions else [lacks(a, b, PREDICTIONS)]
    lines += ["predictions", *(f"  {line}" for line in compared)]
    return "\n".join([*lines, *verdict(a, b, found, facts)])


def _facts(facts: Sequence[FactDifference]) -> Iterator[str]:
    for section, found in groupby(facts, key=lambda fact: fact.section):
        yield section
        yield from _aligned([(fact.key, _short(fact.old), _short(fact.new)) for fact in found])


def _metrics(a: RunFolder, b: RunFolder) -> Iterator[str]:
    own, other = _numbers(a), _numbers(b)
    pairs = {name: (own.get(name), other.get(name)) for name in [*own, *other]}
    if pairs:
        yield "metrics"
    rows = [(n, _number(x), f"{_number(y)}  {_apart(x, y)}") for n, (x, y) in pairs.items()]
    yield from _aligned(rows)


def _aligned(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    width = max((len(key) for key, _, _ in rows), default=0)
    yield from (f"  {key:<{width}}  {old} → {new}".rstrip() for key, old, new in rows)


def _numbers(run: RunFolder) -> dict[str, float]:
    """Return all metrics of a run, the test split and the selecting metric first."""
    metrics = run.result.metrics
    parts = sorted(metrics, key=lambda part: part != "test")
    return {
        f"{part} {name}": value
        for part in parts
        for name, value in sorted(metrics[part].items(), key=lambda m: m[0] != run.result.metric)
        if is_number(value)
    }


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _apart(own: float | None, other: float | None) -> str:
    if own is None or other is None:
        return ""
    if own == other:
        return "equal"
    gain = other - own
    return f"{gain:+.2f}" if abs(gain) >= 0.005 else f"{gain:+.1e}"


def _predictions(found: Predictions) -> Iterator[str]:
    shared = f"{found.both:,} examples in both" if found.both else "no example in both"
    alone = [_counted(n, f"only in {run}") for n, run in zip(found.only, "AB", strict=True)]
    yield ", ".join([shared, *filter(None, alone)])
    if found.targets:
        yield f"{found.targets:,} have a different target in B"
    if not found.differing:
        yield from ["all predictions are equal"] if found.both else []
        return
    each, none = ("nearer", "equally near") if found.numbers else ("correct only", "wrong in both")
    counts = [f"{found.better[run]:,} {each} in {run}" for run in "AB"]
    counts += [_counted(found.better["both"], "correct in both, with different texts")]
    counts += [_counted(found.better["neither"], none)]
    yield f"{found.differing:,} predictions differ: {', '.join(filter(None, counts))}"
    yield from (f"  {line}" for line in found.shown)


def _counted(count: int, words: str) -> str:
    return f"{count:,} {words}" if count else ""


def _short(value: Any) -> str:
    text = "-" if value is None else str(dict(value) if isinstance(value, Mapping) else value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


# The first row of `metrics.jsonl` in which two runs differ.

METRICS = "metrics.jsonl"
_NAMING = ("part", "event", "step")
Rows = dict[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Journals:
    """The number of rows, and the first difference as text."""

    rows: int
    first: str | None = None


def compare_metrics(a: RunFolder, b: RunFolder) -> Journals | None:
    """Return the first difference; None if a run has no journal. Times are not compared.

    Raises:
        UserError: a line is damaged.
    """
    own, other = a.rows(METRICS), b.rows(METRICS)
    if own is None or other is None:
        return None
    return Journals(len(own), _first(_by_step(own), _by_step(other)))


def _first(own: Rows, other: Rows) -> str | None:
    for name, row in own.items():
        if name not in other:
            return f"{_place(name)}: only A has it"
        if row != other[name]:
            return f"{_place(name)}: {_changes(row, other[name])}"
    extra = next((name for name in other if name not in own), None)
    return f"{_place(extra)}: only B has it" if extra else None


def _by_step(rows: list[dict[str, Any]]) -> Rows:
    """Return rows by part, event and step; an interrupted run may have another order."""
    timeless = [{k: v for k, v in row.items() if "second" not in k} for row in rows]
    return {tuple(str(row.get(key) or "") for key in _NAMING): row for row in timeless}


def _place(name: tuple[Any, ...]) -> str:
    part, event, step = name
    where = f"step {step} ({event})" if step else event
    return f"{where} of {part}" if part else where


def _changes(row: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    keys = [key for key in dict.fromkeys([*row, *other]) if row.get(key) != other.get(key)]
    return ", ".join(f"{key} {row.get(key)} → {other.get(key)}" for key in keys)


# A bit-for-bit comparison of the learned tensors of two runs, without torch.


@dataclass(frozen=True)
class Tensors:
    """The number of learned tensors, and the names of those that differ."""

    count: int
    differing: tuple[str, ...]


def compare_tensors(a: RunFolder, b: RunFolder) -> Tensors | None:
    """Return which learned tensors differ in type, shape or any bit; None if a file is missing.

    Raises:
        UserError: a file is damaged.
    """
    if lacks(a, b, PROMPT):
        return None
    ours, others = _hashes(a), _hashes(b)
    names = sorted({*ours, *others})
    return Tensors(len(names), tuple(n for n in names if ours.get(n) != others.get(n)))


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
            header, found = unpacked(tensors.metadata()), dict[str, str]()
            for name in tensors.keys():  # noqa: SIM118
                array = tensors.get_tensor(name)
                hashed = hashlib.sha256(f"torch.{array.dtype} {list(array.shape)}".encode())
                hashed.update(array)
                found[name] = hashed.hexdigest()
        if header.pop(DIGEST, None) not in (None, combined(found, header)):
            raise ValueError("its digest is another")
    except ValueError as error:
        raise UserError(f"{file}: damaged ({error}). {advice}") from error
    return found


# The verdict on two runs: whether they should be equal, and where they differ first.

_CONFIGURED = ("configuration", "seeds", "data")
_BESIDE = ("names", "data", "backbone", "start", "versions", "code", "machine")
_SHOWN = 5


@dataclass(frozen=True)
class Measured:
    """The compared files of two runs; None if a file is missing."""

    predictions: Predictions | None
    tensors: Tensors | None
    journals: Journals | None


def measured(a: RunFolder, b: RunFolder) -> Measured:
    """Return the comparison of the files of two runs.

    Raises:
        UserError: a file is damaged.
    """
    return Measured(compare_answers(a, b), compare_tensors(a, b), compare_metrics(a, b))


def verdict(
    a: RunFolder, b: RunFolder, found: Measured, facts: Sequence[FactDifference]
) -> Iterator[str]:
    """Yield the lines of the verdict, the conclusion first."""
    compared = _compared(a, b, found)
    same = same_configuration(a, b)
    unequal = [name for name, equal in compared.items() if not equal]
    if not unequal:
        though = "" if same else f", though they differ in {_keys(facts)}"
        yield f"equal to the last bit{though}: {', '.join(compared)}"
    elif same:
        yield f"SHOULD BE EQUAL AND ARE NOT: one configuration, but different {', '.join(unequal)}"
        yield from _where(found)
        yield from _causes(facts)
    else:
        yield f"different configurations: they differ in {_keys(facts)}, so the results may differ"
    files = (PREDICTIONS, PROMPT, METRICS)
    if missing := [line for file in files if (line := lacks(a, b, file))]:
        yield f"not compared: {'; '.join(missing)}"


def lacks(a: RunFolder, b: RunFolder, file: str) -> str:
    """Return which run lacks a file; empty if both have it."""
    without = [name for name, run in (("A", a), ("B", b)) if not (run.folder / file).is_file()]
    return f"no {file} in {' and '.join(without)}" if without else ""


def _compared(a: RunFolder, b: RunFolder, found: Measured) -> dict[str, bool]:
    equal = {"metrics": a.result.metrics == b.result.metrics}
    if a.result.status != b.result.status:
        equal["status"] = False
    if found.predictions is not None:
        equal["predictions"] = found.predictions.equal()
    if found.tensors is not None:
        equal["learned tensors"] = not found.tensors.differing
    if found.journals is not None:
        equal[f"rows of {METRICS}"] = found.journals.first is None
    return equal


def _where(found: Measured) -> Iterator[str]:
    if found.journals and found.journals.first:
        yield f"  first difference in {METRICS}: {found.journals.first}"
    elif found.journals:
        yield f"  {METRICS} is equal: the runs differ only after training"
    if found.tensors and found.tensors.differing:
        yield f"  learned tensors that differ: {_few(found.tensors.differing)}"


def _causes(facts: Sequence[FactDifference]) -> Iterator[str]:
    causes = [f"{fact.section} {fact.key}" for fact in facts if fact.section in _BESIDE]
    if causes:
        yield f"  differences outside the configuration: {_few(causes)}"
    else:
        yield "  no recorded difference outside the configuration"


def _keys(facts: Sequence[FactDifference]) -> str:
    keys = [fact.key for fact in facts if fact.section in _CONFIGURED]
    return _few(keys) if keys else "their ids"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
