"""The pictures of the site, and what a method costs in parameters."""

from picture import picture as drawn
from placement import BACKBONES, Placement, placement
from text import figure, table

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.base import built

_SHOWN = {  # three vectors are enough to see where they go
    "prompt_tuning": ["method.length=3"],
    "ptuning_v2": ["method.length=3"],
    "idpg": ["method.length=3"],
    "ppt": ["method.length=3", "start=random"],
}
_LARGE = ("bert_large_cased", "roberta_large", "gpt2_medium", "t5_large_lm_adapt", "electra_large")


def picture(method: str, backbone: str, *overrides: str) -> str:
    """Return one picture.

    Raises:
        UserError: the combination is rejected.
    """
    placed = placement(backbone, f"method={method}", *_SHOWN.get(method, []), *overrides)
    if isinstance(placed, str):
        raise UserError(placed)
    return _figure(placed, method, backbone, " ".join(overrides))


def families(method: str, *overrides: str) -> str:
    """Return the pictures of a method on every family; a rejected one gives its reason."""
    parts, rejected = [], []
    for backbone in BACKBONES:
        if backbone == "pocket_electra" and method != "dpt":
            continue  # a masked model, as BERT is
        placed = placement(backbone, f"method={method}", *_SHOWN.get(method, []), *overrides)
        if isinstance(placed, str):
            rejected.append(f"- `{backbone}`: {placed}")
        else:
            parts.append(_figure(placed, method, backbone, ""))
    if rejected:
        parts.append("Rejected, with the message that a run prints:\n\n" + "\n".join(rejected))
    return "\n\n".join(parts)


def _figure(placed: Placement, method: str, backbone: str, more: str) -> str:
    shown = f"<code>{f'method={method} backbone={backbone} {more}'.strip()}</code>"
    svg = drawn(placed, f"Where {method} puts its vectors on {backbone}")
    return figure(svg, f"{shown} · {placed.family}")


def cost(method: str) -> str:
    """Return the trained parameters with the default options, on large backbones.

    They are counted from sizes: no weights are read.
    """
    rows = []
    for backbone in _LARGE:
        if counted := _counted(method, backbone):
            learned, whole = counted
            share = f"{100 * learned['total'] / whole:.3g} %"
            parts = [f"{learned[part]:,}" for part in ("prompt", "head", "backbone")]
            rows.append((f"`{backbone}`", *parts, share))
    return table(("backbone", "prompt", "head", "backbone tuned", "share"), rows)


def _counted(method: str, backbone: str) -> tuple[dict[str, int], int] | None:
    composed = compose_run(
        [f"backbone={backbone}", "task=pocket_sentiment", f"method={method}", *_start(method)]
    )
    parts = composed.components()
    own, task = parts["backbone"].build(), parts["task"].build(None, None)
    try:
        made = built(parts["method"], composed.readout, own, task)
    except UserError:
        return None
    return made.learned_parameters(), own.size()


def _start(method: str) -> list[str]:
    return ["start=random"] if method.startswith("ppt") else []
