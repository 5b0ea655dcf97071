"""The cells of a table of results: runs that differ only in their seed, or in one more key."""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ptrun.config.identity import flat
from ptrun.config.writing import value_text
from ptrun.errors import UserError, unknown
from ptrun.types import RunResult

NAMES = ("task", "method", "backbone", "setting", "protocol")
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ only in their seed.

    `differs` lists the settings that distinguish this cell from others of the same names.
    """

    names: tuple[str, ...]
    differs: str
    runs: Sequence[RunResult]

    @property
    def failed(self) -> int:
        """The number of runs that did not finish."""
        return sum(run.status != "finished" for run in self.runs)

    def values(self, split: str) -> list[float]:
        """Return the selecting metric of each finished run on `dev` or `test`."""
        done = [run for run in self.runs if run.status == "finished"]
        return [run.metrics[split][run.metric] for run in done if run.metrics[split]]


@dataclass(frozen=True)
class Merged:
    """Cells that differ only in the value of one key, by that value."""

    names: tuple[str, ...]
    differs: str
    cells: Mapping[str, SeedGroup]


def cells(results: Sequence[RunResult]) -> list[SeedGroup]:
    """Group results by everything except their seed."""
    groups = list(grouped(results, lambda run: run.group).values())
    told = zip(groups, _differences(groups, "seed"), strict=True)
    seed_groups = [SeedGroup(_names(runs[0]), differs, runs) for runs, differs in told]
    return sorted(seed_groups, key=lambda cell: (cell.names, cell.differs))


def merged(results: Sequence[RunResult], key: str) -> list[Merged]:
    """Group results by everything except their seed and one key of the configuration.

    Args:
        results: the results.
        key: the key's path, such as `readout.pattern`.

    Raises:
        UserError: no result has the key.
    """
    flats = [flat(run.config) for run in results]
    if not any(key in config for config in flats):
        varied = _varied(flats)
        siblings = {k for k in varied if k.split(".")[0] == key.split(".")[0]}
        raise UserError(unknown(f"report --over {key}", key, siblings or varied))

    def rest(run: RunResult) -> str:
        config = flat(run.config)
        return str(sorted((name, config[name]) for name in config.keys() - {key, "seed"}))

    groups = list(grouped(results, rest).values())
    told = zip(groups, _differences(groups, key), strict=True)
    rows = [Merged(_names(runs[0]), differs, _by_value(key, runs)) for runs, differs in told]
    return sorted(rows, key=lambda row: (row.names, row.differs))


def _by_value(key: str, runs: Sequence[RunResult]) -> dict[str, SeedGroup]:
    by_value = grouped(runs, lambda run: str(flat(run.config).get(key)))
    return {
        value: SeedGroup(_names(seeds[0]), f"{key}={value}", seeds)
        for value, seeds in by_value.items()
    }


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items in groups of equal keys."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _names(run: RunResult) -> tuple[str, ...]:
    return tuple(run.names.get(name, "?") for name in NAMES)


def _differences(groups: Sequence[Sequence[RunResult]], except_key: str) -> list[str]:
    """Return `key=value` for each setting in which groups of the same names differ.

    Flat configurations are not kept: a sweep may have thousands.
    """
    firsts = [runs[0] for runs in groups]
    varied = {
        names: _varied(flat(run.config) for run in runs) - {"seed", except_key}
        for names, runs in grouped(firsts, _names).items()
    }
    texts = []
    for run in firsts:
        keys = varied[_names(run)]
        settings = {key: value for key, value in flat(run.config).items() if key in keys}
        for key, value in settings.items():
            if value is None or isinstance(value, bool):
                settings[key] = value_text(key, value)
        texts.append(" ".join(f"{key}={value}" for key, value in settings.items()))
    return texts


def _varied(flats: Iterable[Mapping[str, object]]) -> set[str]:
    """Return the keys in which configurations differ; one that is missing is None."""
    base: dict[str, str] | None = None  # the first configuration
    varied: set[str] = set()
    for config in flats:
        settings = {key: str(value) for key, value in config.items()}
        base = settings if base is None else base
        keys = {*settings, *base}
        varied |= {key for key in keys if settings.get(key, "None") != base.get(key, "None")}
    return varied


# Rules that combine the runs of several seeds into one number or one prediction per example.

L = TypeVar("L", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of `n` scores; the deviation divides by `n - ddof`."""

    mean: float
    std: float | None
    """None unless `n` is above `ddof`."""
    n: int
    ddof: int


def mean_std(scores: Sequence[float], *, ddof: Literal[0, 1] = 1) -> Spread:
    """Return mean and deviation. `ddof=1` is the rule of our own tables, `ddof=0` that of IDPG's.

    Raises:
        ValueError: `scores` is empty.
    """
    deviation = statistics.stdev if ddof else statistics.pstdev
    std = deviation(scores) if len(scores) > ddof and all(map(math.isfinite, scores)) else None
    return Spread(statistics.fmean(scores), std, len(scores), ddof)


def mean_of_best(scores: Sequence[float], *, keep: int) -> float:
    """Return the mean of the `keep` highest scores: DPT keeps 3 of 10 seeds by their test score.

    This is optimistic and hides collapsed seeds. Report `mean_std` and the minimum beside it.

    Raises:
        ValueError: `keep` is below 1 or above the number of scores.
    """
    if not 1 <= keep <= len(scores):
        raise ValueError(f"keep is {keep}; there are {len(scores)} scores: use 1 to that number.")
    return statistics.fmean(sorted(scores, reverse=True)[:keep])


def near_best(scores: Sequence[float], *, points: float = 2.0) -> int:
    """Return how many scores are at most `points` below the highest."""
    return sum(max(scores) - score <= points for score in scores)


def best_on_dev(dev: Sequence[float], test: Sequence[float]) -> float:
    """Return the test score of the run with the best dev score.

    Ties on dev are common with 32 examples. Tied runs count equally: the result is the mean of
    their test scores and does not depend on the order of seeds.

    Raises:
        ValueError: there is no run, or dev and test differ in number.
    """
    return statistics.fmean(t for d, t in zip(dev, test, strict=True) if d == max(dev))


def majority_vote(predictions: Sequence[Sequence[L]]) -> list[L]:
    """Return the most common label of each example; each row of `predictions` is one seed.

    The earliest seed breaks a tie. IDPG calls this bagging: 5 seeds and two classes cannot tie.

    Raises:
        ValueError: the seeds have different numbers of examples.
    """
    by_example = zip(*predictions, strict=True)
    return [Counter(labels).most_common(1)[0][0] for labels in by_example]


def mean_vote(predictions: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean number of each example: IDPG's bagging of STS-B, a regression.

    Raises:
        ValueError: as `majority_vote`.
    """
    return [statistics.fmean(numbers) for numbers in zip(*predictions, strict=True)]


# The scores of each label over the seeds of a cell.

_MOST_OTHERS = 3


@dataclass(frozen=True)
class LabelScores:
    """The scores of a label on test.

    Args:
        scores: `precision`, `recall` and `f1` by seed, 0-100.
        count: the test examples with the label, or the entities.
        read_as: how often each label was predicted for them, over all seeds; empty for entities.
        label: the label.
    """

    label: str
    scores: Mapping[str, Sequence[float]]
    count: int
    read_as: Mapping[str, int]

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len(self.scores["f1"])

    @property
    def confused(self) -> str:
        """The most frequent other predictions, such as `neg 3, mid 1`."""
        others = [(name, n) for name, n in self.read_as.items() if name != self.label]
        others.sort(key=lambda pair: (-pair[1], pair[0]))
        more = [f"{len(others) - _MOST_OTHERS} more"] if len(others) > _MOST_OTHERS else []
        return ", ".join([*(f"{name} {n:,}" for name, n in others[:_MOST_OTHERS]), *more])


def labels_of(runs: Sequence[Mapping[str, Any]]) -> dict[str, LabelScores]:
    """Return the scores of each label from the `by_label` of runs."""
    by_label = {}
    for label in dict.fromkeys(label for run in runs for label in run["scores"]):
        seeds = [run["scores"][label] for run in runs if label in run["scores"]]
        scores = {name: [seed[name] for seed in seeds] for name in ("precision", "recall", "f1")}
        read: Counter[str] = Counter()
        for run in runs:
            read.update(run.get("confusion", {}).get(label, {}))
        by_label[label] = LabelScores(label, scores, seeds[0]["count"], read)
    return by_label


# What stands for a document: its size, and how near it is to the whole document in view.

DOCUMENT = (
    "saved: tokens of the document that need no cache; size: bytes of what is learned instead;\n"
    "kl: to the whole document in view, in nats a token; kept: the part of the kl without the\n"
    "document (method=manual_prompt) that is gone"
)


def of_documents(
    groups: Sequence[SeedGroup],
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Yield the columns of each cell, as values and as text; `-` of a run without a document."""
    kls: list[float | None] = []  # means on test
    for cell in groups:
        every_kl = [run.metrics.get("test", {}).get("kl") for run in cell.runs]
        scores = [kl for kl in every_kl if kl is not None]
        kls.append(statistics.fmean(scores) if scores else None)
    documents = [cell.runs[0].manifest.get("document") for cell in groups]
    pairs = list(zip(kls, documents, strict=True))
    bare = (kl for kl, document in pairs if kl and document and not document["bytes"])
    without = next(bare, None)
    for kl, document in pairs:
        share = 100 * (1 - kl / without) if without and kl is not None else None
        saved = document and document["tokens"] - document["vectors"]
        values = {"saved": saved, "size": document and document["bytes"], "kl": kl, "kept": share}
        texts = {
            "saved": f"{saved:,} of {document['tokens']:,}" if document else "-",
            "size": f"{document['bytes']:,}" if document else "-",
            "kl": "-" if kl is None else f"{kl:.3f}",
            "kept": "-" if share is None else f"{share:.0f} %",
        }
        yield values, texts
