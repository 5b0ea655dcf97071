"""Export a finished run as a folder that PEFT and transformers load without ptrun."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptrun.backbone.peft.layers import need_peft
from ptrun.converting.staging import check_new, staging
from ptrun.errors import UserError
from ptrun.exporting import card, stock
from ptrun.exporting.form import Form, form_of
from ptrun.exporting.parity import Parity, parity
from ptrun.exporting.reader import cannot
from ptrun.folder.find import Run
from ptrun.runs.finished import Finished
from ptrun.runs.plan import plan, split_of
from ptrun.runs.rerun import again
from ptrun.types import Example


@dataclass(frozen=True)
class Exported:
    """What was exported.

    Args:
        peft_type: PEFT's kind of adapter.
        auto: the class of transformers under it.
        parity: how far it is from the run.
    """

    peft_type: str
    auto: str
    parity: Parity

    def line(self) -> str:
        """Return one line about it."""
        return (
            f"{self.peft_type} on {self.auto}: logits of {self.parity.examples} dev examples "
            f"differ by at most {self.parity.difference:.1e}"
        )


def export(run: Finished, typed: Sequence[str], out: Path, base: str | None = None) -> Exported:
    """Write a run to a new folder, after its logits were compared with stock PEFT's.

    Args:
        run: a finished run.
        typed: `KEY=VALUE` arguments, for the examples.
        out: a new folder. It appears complete, or not at all.
        base: the name of the backbone in the files; None is its hub id or its folder.

    Raises:
        UserError: PEFT cannot express the run, its logits differ, or `out` exists.
    """
    need_peft("export --to peft")
    check_new(out)
    _check(run)
    examples = _dev(run, typed)
    (method,) = run.load().values()
    form = form_of(method)
    base = base or run.backbone.hub or str(run.backbone.folder)
    with staging(out, _bytes(form)) as folder:
        stock.write(folder, form, run.backbone, base)
        model = stock.load(folder, form, run.backbone, run.engine.device)
        found = parity(method, model, form, examples)
        if not found.equal:
            raise cannot(
                f"stock PEFT's logits differ by {found.difference:.1e} (largest logit "
                f"{found.largest:.1f}). Nothing was written."
            )
        card.write(folder, run, form, found, base, method, examples[0])
    return Exported(form.peft_type, form.reader.auto, found)


def _check(run: Finished) -> None:
    """Refuse what is known before weights are read.

    Raises:
        UserError: the run has several prompts, or another backbone than the checkpoint.
    """
    if run.parts != [""]:
        raise cannot(f"it learned {len(run.parts)} prompts, one for each of {run.parts[0]}, ...")
    if "+" in run.done.manifest["backbone"]["weights"]:
        raise cannot("its backbone was tuned by another run, so no published checkpoint fits.")
    if run.done.config["backbone"].get("layer_norm_eps") is not None:
        raise cannot("backbone.layer_norm_eps differs from the checkpoint's.")


def _dev(run: Finished, typed: Sequence[str]) -> Sequence[Example]:
    """Return the dev examples of the run.

    Raises:
        UserError: its data are not there, or have changed.
    """
    old = Run(run.folder, run.done)
    try:
        planned = plan(again(old, typed))
        if planned.content["data"] != run.done.config["data"]:
            raise UserError("the data have changed since")
        return split_of(planned)[0].dev
    except UserError as error:
        raise UserError(
            f"export {run.folder}: logits are compared on the run's dev examples, and these cannot "
            f"be read: {error}"
        ) from error


def _bytes(form: Form) -> int:
    return sum(4 * tensor.numel() for tensor in form.tensors.values())
