"""The runs of a sweep: `seed=1,2 task=sst2,cb` is four runs."""

from collections.abc import Sequence
from itertools import product

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ptrun.config.compose import loosen
from ptrun.config.explain import explain


def expanded(overrides: Sequence[str]) -> list[tuple[tuple[str, ...], str]]:
    """Return the overrides and title of each job; the first key varies slowest.

    Raises:
        UserError: an override is invalid.
    """
    try:
        read = OverridesParser.create().parse_overrides([loosen(o) for o in overrides])
        choices = [
            [f"{given.partition('=')[0]}={value}" for value in own.sweep_string_iterator()]
            if own.is_sweep_override()
            else [given]
            for own, given in zip(read, overrides, strict=True)
        ]
    except HydraException as error:
        raise explain(error, overrides) from error
    varied = [len(own) > 1 for own in choices]
    return [
        (job, " ".join(o.lstrip("+") for o, varies in zip(job, varied, strict=True) if varies))
        for job in product(*choices)
    ]
