"""Rows that join a batch and leave it between two tokens are written as alone."""

from dataclasses import replace
from itertools import cycle

import pytest

from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.backbone.joining import join
from ptrun.backbone.stepping import begin, regrouped, step
from tests.backbone.test_generation import KINDS, NEW, SOME, asked, loaded, row_of
from tests.tiers import tiered


@pytest.mark.parametrize(
    ("kind", "prefix"),
    tiered(
        [*((kind, prefix) for kind in (*SOME, "gemma2") for prefix in (False, True)),
         *zip(KINDS[1:], cycle((True, False)))],
        lambda kind, _: kind in (*SOME, "gemma2"),
    ),
)  # fmt: skip
def test_rows_that_come_and_go_are_written_as_alone(kind, prefix, tmp_path):
    backbone = loaded(kind, tmp_path)
    given = asked(backbone, prefix=prefix and not backbone.architecture.bars_prefixes)
    alone = [row_of(given, row) for row in range(3)]
    if backbone.architecture.has_decoder:  # their first tokens are not equally many
        decoder = alone[2].decoder
        cut = replace(decoder, ids=decoder.ids[:, :1], mask=decoder.mask[:, :1])
        alone[2] = replace(alone[2], decoder=cut)
    found = {0: [], 1: [], 2: []}

    def write(rows, logits):
        for row, token in zip(rows, logits.argmax(dim=1).tolist(), strict=True):
            found[row].append(token)

    def come(*rows):
        held, logits = begin(backbone, join([alone[row] for row in rows], backbone.embed))
        write(rows, logits)
        return held

    def go_on(held, rows, count):
        inputs = join([alone[row] for row in rows], backbone.embed)
        for _ in range(count):
            write(rows, step(backbone, held, inputs, [found[row][-1] for row in rows]))

    held = come(1)
    go_on(held, [1], 2)
    held = regrouped([held, come(2, 0)], [2, 0, 1])  # rows 1, 2 and 0 in another order
    go_on(held, [0, 1, 2], 3)
    held = regrouped([held], [2, 1])
    go_on(held, [2, 1], 2)
    held = regrouped([held], [0])
    go_on(held, [2], 2)
    assert [len(found[row]) for row in range(3)] == [4, 8, 8]
    wanted = [generate(backbone, row, Decoding(max_new_tokens=NEW))[0] for row in alone]
    assert [found[r] for r in range(3)] == [wanted[0][:4], *wanted[1:]]
    together = generate(backbone, join(alone, backbone.embed), Decoding(max_new_tokens=NEW))
    assert together == wanted
