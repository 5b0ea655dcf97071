"""Which 10-billion-parameter backbones can be prompt-tuned on which card, by `ptrun plan`'s count.

    python benchmarks/cards.py [--only NAME ...]

Batches of 16 texts of 128 tokens; bf16, and fp16 where the authors' weights need it. A cell is the
planned peak in GiB, with `c` if activations are recomputed (hardware.checkpointing=true) and `t` if
micro-batches are also cut to 512 tokens; `-` means that it does not fit. Needs no weights. Writes
results/cards.md.
"""

from dataclasses import replace
from typing import Any, get_args

from running import arguments

GIB, LENGTH = 2**30, 128
CARDS = (16, 24, 40, 80)
RUNS = {
    "T5-XXL, prompt tuning": "backbone=t5_xxl_lm_adapt method=prompt_tuning task=boolq",
    "CPM-2, PPT's prompt": "backbone=cpm2 method=prompt_tuning task=lcqmc",
    "GLM-10B, P-tuning v2": "backbone=glm_10b method=ptuning_v2_glm task=boolq",
    "Megatron-11B, P-tuning": "backbone=megatron_11b method=ptuning_lama task=lama",
}
_PAGE = """\
# Which card holds which backbone

Planned peak memory in GiB of prompt tuning on one card (`benchmarks/cards.py`, the counts of
`ptrun plan`): batches of 16 texts of {length} tokens. `c`: with hardware.checkpointing=true; `t`:
also hardware.token_budget=512; `-`: does not fit. 92 % of a card's GiB are counted. Not measured.

| run | weights held as | {cards} |
|---|---|{line}|
{rows}
"""


def planned(typed: str) -> tuple[Any, Any]:
    """Return the costs of a run, and its layout on a GPU."""
    from ptrun.config.compose import compose_run
    from ptrun.planning.costs import Costs, Texts, planned_on
    from ptrun.planning.memory import layout_of

    composed = compose_run([*typed.split(), "hardware=gpu", "train.batch_size=16"])
    layout = layout_of(composed, elsewhere=True)
    return Costs(planned_on(composed, layout), Texts(LENGTH, "", LENGTH)), layout


def cell(own: Any, layout: Any, card: int) -> str:
    """Return the least change with which a run fits on a card, as its peak and a letter."""
    again = replace(layout, checkpointing=True)
    from ptrun.planning.memory import card as offered

    for letter, changed in (("", layout), (" c", again), (" t", replace(again, token_budget=512))):
        peak = own.memory(changed).peak
        if peak <= offered(card).most:
            return f"{peak / GIB:.1f}{letter}"
    return "-"


def main() -> None:
    """Plan every cell and write the page."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS), help="runs")
    given = parser.parse_args()
    from ptrun.backbone.quantization import Quantization

    rows = []
    for name in given.only:
        own, layout = planned(RUNS[name])
        for kind in get_args(Quantization):
            held = replace(layout, quantization=kind)
            cells = " | ".join(cell(own, held, card) for card in CARDS)
            rows.append(f"| {name} | {layout.precision if kind == 'none' else kind} | {cells} |")
            print(rows[-1], flush=True)
    cards = " | ".join(f"{card} GiB" for card in CARDS)
    page = _PAGE.format(length=LENGTH, cards=cards, line="---|" * 4, rows="\n".join(rows))
    (given.out / "cards.md").write_text(page.replace("||\n", "|\n"))


if __name__ == "__main__":
    main()
