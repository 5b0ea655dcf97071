"""Keyed dropout: the right share, independent cells, and no dependence on company."""

import pytest
import torch

from ptrun.backbone import dropout
from ptrun.backbone.dropout import drop, row_keys


def keep(keys, site, shape, p, origin=0):
    """Return which cells `[B, *shape]` are kept."""
    return drop(torch.ones(len(keys), *shape), keys, site, p, origin) != 0


def test_the_share_of_dropped_cells_is_p_for_every_row_and_site():
    keys = row_keys(seed=1, step=5, slots=range(64))
    for site in (0, 1, 1_000_000):
        share = 1 - keep(keys, site, (40, 256), 0.1).float().mean(dim=(1, 2))
        assert (share - 0.1).abs().max() < 5 * (0.1 * 0.9 / 10240) ** 0.5


def test_rows_sites_steps_seeds_and_columns_are_uncorrelated():
    size = (128, 128)
    places = [(1, 1, 0, 0), (2, 1, 0, 0), (1, 2, 0, 0), (1, 1, 1, 0), (1, 1, 0, 1)]
    masks = [
        keep(row_keys(seed, step, [slot]), site, size, 0.5).float().flatten() - 0.5
        for seed, step, slot, site in places
    ]
    limit = 5 / (128 * 128) ** 0.5
    for i, a in enumerate(masks):
        for b in masks[:i]:
            assert abs(float((a * b).mean() * 4)) < limit
    square = masks[0].view(size)
    for moved in (square.roll(1, 0), square.roll(1, 1), square.T):
        assert abs(float((square * moved).mean() * 4)) < 2 * limit


def test_a_cell_keeps_its_mask_in_any_company_width_and_behind_any_prefix():
    keys = row_keys(3, 7, [0, 4, 9])
    wide = keep(keys, 2, (6, 20, 30), 0.3)
    assert torch.equal(keep(keys[1:2], 2, (6, 20, 30), 0.3), wide[1:2])
    assert torch.equal(keep(keys, 2, (6, 11, 17), 0.3), wide[:, :, :11, :17])
    assert torch.equal(keep(keys, 2, (6, 20, 35), 0.3, origin=5)[..., 5:], wide)


def test_kept_cells_are_scaled_and_evaluation_is_the_identity():
    x = torch.ones(2, 50, 50)
    dropped = drop(x, torch.tensor([1, 2]), 0, 0.2)
    assert set(dropped.unique().tolist()) == {0.0, 1.25}
    assert drop(x, None, 0, 0.2) is x and drop(x, torch.tensor([1, 2]), 0, 0.0) is x
    assert all(drop(x, torch.tensor([1, 2]), 0, p).isfinite().all() for p in (1e-9, 1 - 1e-9))


@pytest.mark.parametrize("count", [40, 3000])
def test_a_byte_a_cell_is_kept_and_the_bits_are_those_of_the_formula(count):
    """3000 lines are dropped in parts that fit into a cache."""
    lines, numbers = dropout.Keyed(row_keys(3, 1, range(count)), 7, 0.1).lines([]), (0.1, 4)
    x, saved = torch.randn(count, 500, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        found = dropout.drop_lines(x, lines, *numbers)
    wanted = x * dropout._kept(lines, x.shape[1], *numbers).to(x.dtype).mul(1 / 0.9)
    ahead = torch.randn_like(x)
    (own,), (other,) = (torch.autograd.grad(y, x, ahead) for y in (found, wanted))
    assert torch.equal(found, wanted) and torch.equal(own, other)
    assert sum(t.nbytes for t in saved) <= x.numel()
