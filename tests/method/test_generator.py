"""What generators make, by formula; what S, M and L share; the paper's counts."""

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from ptrun.errors import UserError
from ptrun.method.idpg import GeneratorForm, Generators, Insertion, place

D, N = 1024, 24


def same(x):
    return x


def size(module):
    return sum(p.numel() for p in module.parameters())


def test_a_prompt_by_formula():
    torch.manual_seed(0)
    made = Generators([8] * 3, 8, 5, "M", GeneratorForm("phm", 4, 2))
    (own,) = made.generators.values()
    z = torch.randn(6, 8)
    hidden = gelu(z @ own.down.weight() + own.down.bias)
    for site in range(3):
        expected = (hidden @ own.up.weight()).view(6, 5, 8) + made.biases[str(site)]
        torch.testing.assert_close(made(site, z, same), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["phm", "dense", "none"])
@pytest.mark.parametrize("sites", [1, 3])
def test_the_bias_starts_at_zero_in_s_idpg_dnn_alone(kind, sites):
    """In the released code it is the bias of a linear map, and others are from U(-0.5, 0.5)."""
    torch.manual_seed(0)
    made = Generators([64] * sites, 64, 5, "M", GeneratorForm(kind, 4, 2))
    found = torch.stack(list(made.biases.values()))
    if kind == "dense" and sites == 1:
        assert found.count_nonzero() == 0
    else:
        assert -0.5 <= found.min() < -0.45 and 0.45 < found.max() <= 0.5


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_the_input_s_prompt_has_a_residual_then_a_norm(norm, residual):
    """By the released code: z is added to each normalized vector, and the sum is normalized."""
    torch.manual_seed(0)
    made = Generators(
        [8] * 2, 8, 5, "M", GeneratorForm("dense", 4, layer_norm=norm, residual=residual)
    )
    plain = Generators([8] * 2, 8, 5, "M", GeneratorForm("dense", 4))
    for parameter in made.parameters():
        parameter.data.normal_()
    plain.load_state_dict(made.state_dict(), strict=False)
    z = torch.randn(6, 8)
    expected = plain(0, z, same)
    if residual:
        own = made.added_norm
        expected = z[:, None] + layer_norm(expected, (8,), own.weight, own.bias)
    if norm:
        expected = layer_norm(expected, (8,), made.norm.weight, made.norm.bias)
    torch.testing.assert_close(made(0, z, same), expected)
    assert torch.equal(made(1, z, same), plain(1, z, same)), "of the input alone"
    assert size(made) - size(plain) == 16 * (norm + residual)


@pytest.mark.parametrize("own", [{"layer_norm": True}, {"residual": True}])
def test_biases_alone_have_no_norm_and_no_residual(own):
    with pytest.raises(UserError, match=f"method.{next(iter(own))}=true: method.generator=none"):
        GeneratorForm("none", **own)


def test_a_residual_needs_instances_as_wide_as_the_prompt():
    with pytest.raises(UserError, match="adds an instance of 300 numbers to prompt vectors of 8"):
        Generators([8], 300, 5, "M", GeneratorForm("dense", 4, residual=True))


@pytest.mark.parametrize(
    ("title", "sites", "inputs", "sharing", "form", "count"),
    [
        (
            "one A for both maps",
            N,
            D,
            "M",
            GeneratorForm("phm", 16, 16, shared_mixing=True),
            133_136,
        ),
        ("two A, one layer", 1, D, "M", GeneratorForm("phm", 256, 16), 111_872),
        ("S of all layers", N, D, "S", GeneratorForm("phm", 16, 16), 14_352 + 5_120),
        ("layer norm", 1, D, "M", GeneratorForm("phm", 256, 16, True, True), 107_776 + 2_048),
        ("both", 1, D, "M", GeneratorForm("phm", 256, 16, True, True, True), 107_776 + 4_096),
        ("L", N, D, "L", GeneratorForm("phm", 16, 16), 24 * 14_352 + 122_880),
    ],
)
def test_counts_are_the_papers(title, sites, inputs, sharing, form, count):
    with torch.device("meta"):
        assert size(Generators([D] * sites, inputs, 5, sharing, form)) == count, title


def test_sites_of_another_width_share_nothing():
    made = Generators([6, 8, 8], 8, 2, "S", GeneratorForm("phm", 4, 2))
    assert len(made.generators) == len(made.biases) == 2
    assert [made(site, torch.randn(1, 8), same).shape[-1] for site in range(3)] == [6, 8, 8]


# Vectors put into rows, row by row, at every place of IDPG's appendix A.5.


ROWS = ["<a//bc/", "<a/bcde/", "<abc/", "</"]  # < is [CLS], / a separator


def cells(rows):
    width = max(map(len, rows))
    tokens = torch.tensor([[ord(c) for c in row.ljust(width, ".")] for row in rows])
    return tokens, tokens != ord("."), tokens == ord("/")


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (0, ["<PPa//bc/", "<PPa/bcde/", "<PPabc/", "<PP/"]),
        (1, ["<aPP//bc/", "<aPP/bcde/", "<abcPP/", "<PP/"]),
        (2, ["<a//PPbc/", "<a/PPbcde/", "<abc/PP", "</PP"]),
        (3, ["<a//bcPP/", "<a/bcdePP/", "<abcPP/", "<PP/"]),
        (4, ["<a//bc/PP", "<a/bcde/PP", "<abc/PP", "</PP"]),
    ],
)
def test_prompts_stand_where_they_should(position, expected):
    tokens, mask, separators = cells(ROWS)
    put = Insertion(place(position, mask, separators), tokens.shape[1], 2)
    woven = put.weave(tokens, torch.full((4, 2), ord("P")))
    texts = ["".join(map(chr, row)).rstrip(".") for row in woven.tolist()]
    assert texts == expected


def test_a_row_without_separator_has_its_prompt_at_the_end():
    _, mask, separators = cells(["<abc", "<abc/a"])
    assert [place(p, mask, separators)[0].item() for p in range(5)] == [1, 4, 4, 4, 4]


@pytest.mark.parametrize("at", [0, 1, 3, 5])
def test_every_token_is_found_where_it_moved(at):
    tokens = torch.arange(10).view(2, 5) + 1
    put = Insertion(torch.tensor([at, 5 - at]), 5, 3)
    woven = put.weave(tokens, torch.zeros(2, 3, dtype=torch.long))
    rows, columns = torch.arange(2).repeat_interleave(5), torch.arange(5).repeat(2)
    assert torch.equal(woven[rows, put.moved(rows, columns)], tokens.flatten())
