"""The number of ranks of a run, and checks of those that a launcher started."""

from ptrun.config.schema import HardwareConfig
from ptrun.errors import UserError


def local_ranks(hardware: HardwareConfig, gpus: int) -> int:
    """Return the number of ranks to start on this machine, given the number of visible GPUs.

    Raises:
        UserError: the ranks do not make whole copies of the model, or there are too few GPUs.
    """
    width, cuda = hardware.model_parallel or 1, _on_gpus(hardware, gpus)
    ranks = hardware.ranks or (gpus if cuda else width)
    if cuda and ranks > gpus:
        raise UserError(
            f"hardware.ranks is {ranks}, but {gpus} GPUs are visible; each rank needs one: type "
            f"hardware.ranks={_fits(gpus, width)}, or hardware.device=cpu."
        )
    if ranks % width:
        origin = "hardware.ranks is" if hardware.ranks else "visible GPUs:"
        raise UserError(
            f"{origin} {ranks}, but the model is divided over {width} ranks "
            f"(hardware.model_parallel); type hardware.ranks={_fits(ranks, width)}."
        )
    return ranks


def check_world(hardware: HardwareConfig, world: int) -> None:
    """Check the number of processes that a launcher started.

    Raises:
        UserError: they would all do the same run, or do not make whole copies of the model.
    """
    if not hardware.divides:
        if world > 1:
            raise UserError(
                f"a launcher started {world} processes, which would all do the same run; type "
                "hardware=zero1 to share it, or start one process."
            )
        return
    width = hardware.model_parallel or 1
    if world % width:
        raise UserError(
            f"a launcher started {world} ranks, but the model is divided over {width} "
            f"(hardware.model_parallel); start {_fits(world, width)}, or type hardware=zero1."
        )


def _on_gpus(hardware: HardwareConfig, gpus: int) -> bool:
    return hardware.device == "cuda" or (hardware.device == "auto" and gpus > 0)


def _fits(ranks: int, width: int) -> int:
    """Return the most ranks up to `ranks` that make whole copies of the model; at least `width`."""
    return max(width, ranks - ranks % width)
