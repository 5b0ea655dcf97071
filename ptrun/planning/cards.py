"""On which GPU a run fits, and what to type for it: a change is composed and counted as typed."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import NamedTuple, get_args

from ptrun.config.compose import compose_run
from ptrun.config.schema import Quantization
from ptrun.config.writing import value_text
from ptrun.errors import UserError
from ptrun.planning.costs import Costs, planned_on
from ptrun.planning.memory import Device, HardwareLayout, layout_of, micro_batches

CARDS = (16, 24, 40, 48, 80)
"""GiB of cards, as their names say."""
_CHANGED = ("precision", "quantization", "model_parallel", "checkpointing", "token_budget")
_RANKS = ((2, 2), (4, 4), (8, 8), (16, 16), (16, 8), (32, 8))  # and those that divide the model


class Change(NamedTuple):
    """What to type, "" for nothing, the layout that it makes, and the peak bytes on a device."""

    typed: str
    layout: HardwareLayout
    peak: float


def needed(costs: Costs, layout: HardwareLayout) -> float:
    """Return the peak bytes on a device; all ranks share a CPU. Infinite if it cannot be."""
    try:
        return costs.memory(layout).peak * (layout.ranks if layout.device == "cpu" else 1)
    except UserError:
        return inf


class Changes:
    """The changes of `hardware` with which a run fits; those that cost the least time come first.

    Args:
        costs: of the run, whatever its hardware.
        overrides: what was typed for it.
        elsewhere: it runs on another machine, on a GPU; `added` is what is then typed as well.
    """

    def __init__(self, costs: Costs, overrides: Sequence[str], *, elsewhere: bool):
        self.costs, self.overrides, self.elsewhere, self.added = costs, overrides, elsewhere, ""
        self.layout = self._layout()
        if elsewhere and self.layout.device != "cuda":
            self.added, self.layout = "hardware=gpu", self._layout("hardware=gpu")

    def forms(self, most: float) -> Iterator[list[Change]]:
        """Yield what fits in `most` bytes on one device: in dense weights, in 8 and in 4 bits."""
        layout, method = self.layout, self.costs.method
        low = replace(layout, precision="bf16") if layout.precision == "fp32" else layout
        yield self._first([layout], most) or self._least(low, most)
        dense = method.alone or method.backbone.architecture.fused  # what needs dense weights
        if not dense and layout.parallel == 1 and layout.quantization == "none":
            for kind in get_args(Quantization)[1:]:
                yield self._least(replace(low, quantization=kind), most)[:1]

    def divided(self, most: float) -> list[Change]:
        """Return the fewest ranks that divide the model and fit; none if none are known."""
        with suppress(UserError):
            mp4 = self._layout("hardware=zero1_mp4")
            for ranks, parallel in _RANKS:
                layout = replace(mp4, model_parallel=parallel, ranks=ranks)
                if ranks > self.layout.ranks and (changes := self._least(layout, most)):
                    return changes[:1]
        return []

    def _least(self, layout: HardwareLayout, most: float) -> list[Change]:
        """Return the layout, or with smaller micro-batches or recomputed activations, or both."""
        length, again = self.costs.texts.length, replace(layout, checkpointing=True)
        rows, _ = micro_batches(layout, self.costs.planned.train.batch_size, length)
        budgets = [(rows >> halvings) * length for halvings in range(1, rows.bit_length())]
        smaller, both = (
            [replace(base, token_budget=budget) for budget in budgets] for base in (layout, again)
        )
        changes = self._first([layout], most)
        changes = changes or self._first(smaller, most) + self._first([again], most)
        return changes or self._first(both, most)

    def _first(self, layouts: Iterable[HardwareLayout], most: float) -> list[Change]:
        """Return the first layout that fits, by the formula and then as it is typed."""
        fitting = (layout for layout in layouts if needed(self.costs, layout) <= most)
        for layout in fitting:
            words = [] if layout.option == self.layout.option else [f"hardware={layout.option}"]
            usual = self._layout(*words) if words else self.layout
            keys = [key for key in _CHANGED if getattr(layout, key) != getattr(usual, key)]
            keys += ["ranks"] * (layout.ranks > max(layout.parallel, usual.ranks))
            words += [f"hardware.{key}={value_text(key, getattr(layout, key))}" for key in keys]
            with suppress(UserError):  # it may be refused
                composed = self._layout(*words)
                if (peak := needed(self.costs, composed)) <= most:
                    return [Change(" ".join(words), composed, peak)]
        return []

    def _layout(self, *words: str) -> HardwareLayout:
        """Return the layout of the run with `words` in the place of the same keys, if allowed."""
        if not any(word.startswith("hardware=") for word in words) and self.added:
            words = (self.added, *words)
        keys = {word.partition("=")[0] for word in words}
        run = compose_run([*(o for o in self.overrides if o.partition("=")[0] not in keys), *words])
        layout = layout_of(run, elsewhere=self.elsewhere)
        planned_on(run, layout)
        return layout


def which_gpu(
    changes: Changes, here: Sequence[Device], others: Sequence[Device]
) -> tuple[str, dict[str, HardwareLayout]]:
    """Return on which GPUs a run fits, and the layouts that are named by what to type.

    GPUs that are `here` come first. Of the `others`, by size, the smallest for each kind of change
    is named; those that hold weights in fewer bits come last. If none is enough, several may be.
    """
    dense, fewer, kinds = list[str](), list[str](), set[str]()
    layouts = dict[str, HardwareLayout]()
    for device in (*here, *others):
        form = next(filter(None, changes.forms(device.most)), [])
        if not form and (device in here or (device == others[-1] and not kinds)):
            form = changes.divided(device.most)
        typed = " or ".join(change.typed for change in form)
        kind = re.sub(r"=\d+", "", typed)
        if not form or (device in others and kind in kinds):
            dense += [f"{device.name} is not enough"] * (device in here)
            continue
        several = f"{form[0].layout.ranks} of " * (form[0].layout.ranks > 1)
        text = f"{several}{device.name} {f'with {typed}' if typed else 'as it is'}"
        if device in others:
            text = text if typed or several or kinds else f"any of {device.name} or more"
            kinds.add(kind)
        held = form[0].layout.quantization != changes.layout.quantization
        (fewer if held and device in others else dense).append(text)
        for change in form:
            added = changes.added * (not change.typed.startswith("hardware="))
            layouts[f"{added} {change.typed}".strip()] = change.layout
    layouts.pop("", None)  # as it is
    added = f" ({changes.added})" if changes.added else ""
    return f"GPU{added}: {'; '.join(dense + fewer) or 'no known change makes it fit'}.", layouts
