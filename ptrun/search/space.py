"""The searched ranges of a command line, in Hydra's grammar, as Optuna's distributions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from ptrun.config.compose import loosen
from ptrun.config.explain import explain
from ptrun.errors import UserError

_OF_THE_SEARCH = ("seed", "name", "outputs", "trial", "rerun", "keep", "tracking")


@dataclass(frozen=True)
class Space:
    """What is searched, by key, and the overrides of all trials."""

    ranges: dict[str, BaseDistribution]
    fixed: tuple[str, ...]

    @property
    def grid(self) -> dict[str, list[Any]]:
        """The values of each key.

        Raises:
            UserError: a key has infinitely many.
        """
        return {key: _values(key, range_) for key, range_ in self.ranges.items()}


def space(overrides: Sequence[str]) -> Space:
    """Return what a command line searches.

    Raises:
        UserError: a range is wrong, nothing is searched, or the search itself decides a key.
    """
    try:
        read = OverridesParser.create().parse_overrides([loosen(o) for o in overrides])
        ranges = {
            given.partition("=")[0].lstrip("+"): _distribution(own, given)
            for own, given in zip(read, overrides, strict=True)
            if own.is_sweep_override()
        }
    except HydraException as error:
        raise explain(error, overrides) from error
    if not ranges:
        raise UserError(
            "search: no key has a range. Type one, such as train.lr='tag(log,interval(1e-4,1e-1))' "
            "or method.length=5,10,20."
        )
    if wrong := [key for key in ranges if key.split(".")[0] in _OF_THE_SEARCH]:
        raise UserError(
            f"search {wrong[0]}: one value only; --seeds N are the seeds of the winner."
        )
    searched = tuple(
        o for o, own in zip(overrides, read, strict=True) if not own.is_sweep_override()
    )
    return Space(ranges, searched)


def _distribution(own: Override, given: str) -> BaseDistribution:
    value: Any = own.value()
    if isinstance(value, IntervalSweep):
        log, whole = "log" in value.tags, isinstance(value.start, int)
        kind: Any = IntDistribution if whole and isinstance(value.end, int) else FloatDistribution
        try:
            return kind(value.start, value.end, log=log)  # type: ignore[no-any-return]
        except ValueError as error:
            raise UserError(f"{given}: {error}") from error
    if isinstance(value, RangeSweep) and all(
        isinstance(one, int) for one in (value.start, value.stop, value.step)
    ):
        values = range(value.start, value.stop, value.step)  # type: ignore[arg-type]
        if not values:
            raise UserError(f"{given}: the range is empty.")
        return IntDistribution(min(values), max(values), step=abs(int(value.step)))
    return CategoricalDistribution(list(dict.fromkeys(own.sweep_string_iterator())))


def _values(key: str, range_: BaseDistribution) -> list[Any]:
    if isinstance(range_, CategoricalDistribution):
        return list(range_.choices)
    if isinstance(range_, IntDistribution):
        return list(range(range_.low, range_.high + 1, range_.step))
    raise UserError(
        f"search {key}: --sampler grid needs a list or a range of integers, not an interval."
    )
