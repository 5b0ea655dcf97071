"""The launches of Triton's programs: arguments are checked, and torch computes the result."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from tests.cuda import graphs
from tests.cuda.disguise import Disguised, real
from tests.cuda.rules import CudaRefuses

aten = torch.ops.aten
_MAIN = ("Q", "K", "V", "PK", "PV", "OUT", "GRAD", "DQ", "DK", "DV")
_LINES = ("X", "RESIDUAL", "WEIGHT", "BIAS", "OUT", "SUM", "GRAD", "DR", "DX")


def install() -> None:
    """Let torch answer for the kernels."""
    from ptrun.backbone import kernel, launch

    launch.agrees = lambda *_: True  # type: ignore[assignment]
    kernel.Launch._run = graphs.recorded(_emulated)  # type: ignore[method-assign]
    launch.start = graphs.recorded(_started)


def _check(name: str, given: dict[str, Any]) -> None:
    from ptrun.backbone import kernel_programs

    names = getattr(kernel_programs, name).arg_names
    own = {n: given[n] for n in names if n != "blocks"}
    for n, value in own.items():
        if isinstance(value, Tensor):
            _check_tensor(f"kernel {name}: {n}", value)
        elif not isinstance(value, int | float | bool | str | None):
            raise CudaRefuses(f"kernel {name}: {n} is a {type(value).__name__}")
    same = _LINES if "lines" in own else _MAIN
    types = {own[n].dtype for n in same if isinstance(own.get(n), Tensor)}
    if len(types) > 1:
        raise CudaRefuses(f"kernel {name}: several types {types}")


def _check_tensor(what: str, value: Tensor) -> None:
    if not isinstance(value, Disguised):
        raise CudaRefuses(f"{what} is on {value.device}")
    if value.dim() and value.shape[-1] > 1 and value.stride(-1) != 1:
        raise CudaRefuses(f"{what} has strides {value.stride()}")


def _emulated(self: Any, name: str, _: int, __: int, others: dict[str, Any], rows: int = 0) -> None:
    if self.query.is_meta:
        return
    given = self._arguments(backward=name != "forward") | others
    _check(name, given)
    with _disable_current_modes(), torch.enable_grad():
        if name == "forward":
            _forward(self, given)
        elif name != "deltas":  # a backward pass by torch needs no deltas
            _backward(self, name, given)


def _started(
    name: str, programs: int, given: dict[str, Any], device: torch.device, *_: int, **__: int
) -> None:
    if device.type == "meta" or not programs:
        return
    _check(name, given)
    for n in (*_LINES, "KEYS", "ROWS", "COLUMNS"):
        if given.get(n) is not None and not given[n].is_contiguous():
            raise CudaRefuses(f"kernel {name}: {n} has strides {given[n].stride()}")
    lines = {n: real(given[n]).float() for n in _LINES if given.get(n) is not None}
    with _disable_current_modes(), torch.no_grad():
        _PROGRAMS[name](given, {n: t.view(-1, t.shape[-1]) for n, t in lines.items()})


def _put(target: Tensor, lines: Tensor) -> None:
    real(target).copy_(lines.view(target.shape))


def _dropped(given: dict[str, Any], lines: dict[str, Tensor]) -> None:
    _put(given["OUT"], lines["X"] * _factors(given))


def _normed(given: dict[str, Any], lines: dict[str, Tensor]) -> None:
    x = lines["X"] * _factors(given) if given["DROPS"] else lines["X"]
    total = x + lines["RESIDUAL"]
    shape, affine = (given["SIZE"],), (lines["WEIGHT"][0], lines["BIAS"][0])
    out, *_ = aten.native_layer_norm(total, shape, *affine, given["eps"])
    _put(given["OUT"], out)
    if given["KEEPS"]:
        _put(given["SUM"], total)


def _norm_slopes(given: dict[str, Any], lines: dict[str, Tensor]) -> None:
    shape, affine = (given["SIZE"],), (lines["WEIGHT"][0], torch.zeros(given["SIZE"]))
    _, *stats = aten.native_layer_norm(lines["SUM"], shape, *affine, given["eps"])
    numbers = shape, *stats, *affine, [True, False, False]
    slopes, *_ = aten.native_layer_norm_backward(lines["GRAD"], lines["SUM"], *numbers)
    _put(given["DR"], slopes)
    if given["DROPS"]:
        _put(given["DX"], slopes * _factors(given))


_PROGRAMS = {"dropped": _dropped, "normed": _normed, "norm_slopes": _norm_slopes}


def _factors(given: dict[str, Any]) -> Tensor:
    """Return what dropout multiplies the cells of lines by, `[n, size]`."""
    from ptrun.backbone.dropout import Keyed, _kept

    p = (given["limit"] + 2**15) / 2**16
    tokens = {"rows": real(given["ROWS"]), "columns": real(given["COLUMNS"])}
    keyed = Keyed(real(given["KEYS"]), given["site"], p, start=given["begin"], **tokens)
    lines = keyed.lines([given["first"], given["second"]][: given["AXES"]]).flatten()
    assert len(lines) == given["lines"], f"{len(lines)} lines, not {given['lines']}"
    width = given["SIZE"] if "SIZE" in given else given["size"]
    return _kept(lines, width, p, given["origin"]) * given["boost"]


@dataclass
class _Row:
    """A row of an attention: its index, the place of its queries, its output `[heads, n, d]`."""

    index: int
    place: tuple[int, slice]
    out: Tensor


def _forward(launch: Any, given: dict[str, Any]) -> None:
    with torch.no_grad():
        for row in _rows(launch, _leaves(launch)):
            real(given["OUT"])[row.place] = row.out.transpose(0, 1).to(given["OUT"].dtype)
        real(given["SUMS"]).zero_()  # only the kernels' own backward pass reads them


def _backward(launch: Any, name: str, given: dict[str, Any]) -> None:
    leaves, grad = _leaves(launch), real(given["GRAD"]).float()
    rows = list(_rows(launch, leaves))
    slopes = [grad[row.place].transpose(0, 1) for row in rows]
    keys = ("k", "v") if name == "keys" and given["TEXT"] else ("pk", "pv")
    wanted = ("q",) if name == "queries" else keys
    found = torch.autograd.grad(
        [row.out for row in rows], [leaves[n] for n in wanted], slopes, allow_unused=True
    )
    targets = ("DQ",) if name == "queries" else ("DK", "DV")
    for slope, target in zip(found, targets, strict=True):
        into = real(given[target])
        into.copy_(torch.zeros_like(into) if slope is None else slope.to(into.dtype))


def _leaves(launch: Any) -> dict[str, Tensor]:
    tensors = {
        "q": launch.query,
        "k": launch.key,
        "v": launch.value,
        "pk": launch.prefix_key,
        "pv": launch.prefix_value,
    }
    return {
        n: real(t.detach()).float().clone().requires_grad_(True)
        for n, t in tensors.items()
        if t is not None
    }


def _rows(launch: Any, leaves: dict[str, Tensor]) -> Iterator[_Row]:
    """Yield each row's attention over its prefix and its text, in fp32."""
    terms, packing = launch.terms, launch.terms.packing
    for index in range(packing.size[0] if packing else leaves["q"].shape[0]):
        if packing:
            start, width = (int(real(t)[index]) for t in (packing.starts, packing.widths))
            place = (0, slice(start, start + width))
            seen = real(packing.real)[place[1]].expand(width, width)
            if packing.reach.after == 0:
                seen = seen.tril(-1) | torch.eye(width, dtype=torch.bool)
        else:
            place = (index, slice(0, leaves["q"].shape[2]))
            seen = None if terms.mask is None else real(terms.mask)[index % len(terms.mask), 0]
        q, k, v = (leaves[n][place[0], :, place[1] if packing else slice(None)] for n in "qkv")
        yield _Row(index, place, _attention(launch, leaves, index, q, k, v, seen))


def _attention(
    launch: Any, leaves: dict[str, Tensor], row: int, q: Tensor, k: Tensor, v: Tensor,
    seen: Tensor | None,
) -> Tensor:  # fmt: skip
    """Return the output `[heads, n, d]` of a row."""
    from ptrun.backbone.dropout import drop

    terms, groups = launch.terms, q.shape[0] // k.shape[0]
    k, v = (t.repeat_interleave(groups, dim=0) for t in (k, v))
    scores = q @ k.mT * terms.scale
    if terms.bias is not None:
        scores = scores + real(terms.bias.detach())[row % len(terms.bias)].float()
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    length = 0
    if "pk" in leaves:
        pk, pv = (leaves[n][row].repeat_interleave(groups, dim=0) for n in ("pk", "pv"))
        length, before = pk.shape[1], q @ pk.mT * terms.scale
        if launch.prefix_mask is not None:
            before = before.masked_fill(~real(launch.prefix_mask)[row], -torch.inf)
        scores, v = torch.cat([before, scores], dim=2), torch.cat([pv, v], dim=1)
    weights = torch.ops.aten._safe_softmax(scores, -1)
    if keyed := terms.dropout:
        key = real(keyed.keys)[row : row + 1]
        weights = drop(weights[None], key, keyed.site, keyed.p, length, keyed.start)[0]
    return weights @ v
