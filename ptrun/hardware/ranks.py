"""The processes that do one run together, and what they tell each other.

Neighbours (0-3, 4-7, … with `model_parallel=4`) hold one model together and read the same rows;
processes at the same place in different groups share out the rows.
"""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ptrun.backbone.division import Division
from ptrun.errors import RunFailed, UserError

T = TypeVar("T")
_PATIENCE = timedelta(hours=24)  # labelling a corpus, rank 0 alone, takes long; a dead rank shows


@dataclass(frozen=True)
class Ranks:
    """This process among those that do a run together; alone by default.

    Args:
        rank, size: its number, and how many there are.
        model_parallel: how many hold one model together.
        tensor, data: the group that does, and the one that shares out the rows.
    """

    rank: int = 0
    size: int = 1
    model_parallel: int = 1
    tensor: Any = None
    data: Any = None

    @property
    def main(self) -> bool:
        """Whether this is the one that writes."""
        return self.rank == 0

    @property
    def data_parallel(self) -> int:
        """How many share out the rows."""
        return self.size // self.model_parallel

    @property
    def share(self) -> int:
        """Which share of the rows is this rank's."""
        return self.rank // self.model_parallel

    def division(self, device: str) -> Division | None:
        """Return this rank's part of the model, None where it holds the whole."""
        if self.model_parallel == 1:
            return None
        place = self.rank % self.model_parallel
        return Division(place, self.model_parallel, self.tensor, device)

    def broadcast(self, value: T) -> T:
        """Return the first rank's value, in every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def wait(self) -> None:
        """Wait for all others."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Let the first rank through, then the others: they find what it made."""
        if not self.main:
            self.wait()
        yield
        if self.main:
            self.wait()

    def total(self, values: list[float]) -> list[float]:
        """Return sums over the shares."""
        if self.data_parallel == 1:
            return values
        summed = torch.tensor(values, dtype=torch.float64)
        found: list[Any] = [None] * self.data_parallel
        dist.all_gather_object(found, summed, group=self.data)
        return [float(value) for value in torch.stack(found).sum(dim=0)]

    def summed(self, part: Tensor) -> Tensor:
        """Return the sum over the ranks that hold one model together."""
        whole = part.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(whole, group=self.tensor)
        return whole

    def merged(self, own: Mapping[Any, T]) -> dict[Any, T]:
        """Return what all shares found, by the first rank that holds each model.

        All ranks then decide by the same answers, whatever the last bit of a logit was.
        """
        if self.size == 1:
            return dict(own)
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, dict(own))
        return {key: value for part in found[:: self.model_parallel] for key, value in part.items()}

    def check_same(self, digest: int, step: int) -> None:
        """Check that the ranks which hold one model together read the same rows.

        Raises:
            RunFailed: they do not.
        """
        if self.model_parallel == 1:
            return
        found: list[Any] = [None] * self.model_parallel
        dist.all_gather_object(found, digest, group=self.tensor)
        odd = [place for place, other in enumerate(found) if other != found[0]]
        if odd:
            first = self.rank - self.rank % self.model_parallel
            raise RunFailed(
                f"rank {first + odd[0]} read other rows than rank {first} at step {step}, though "
                "they hold one model together; are code and data the same on all machines?"
            )


ALONE = Ranks()


def joined(model_parallel: int, device: str) -> Ranks:
    """Return this process among those its launcher started; alone if there are no others.

    Raises:
        UserError: their number is no multiple of `model_parallel`.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size % model_parallel:
        raise UserError(
            f"hardware.model_parallel={model_parallel}: {size} processes were started; start a "
            f"multiple of {model_parallel}, or set hardware.model_parallel."
        )
    connect(device)
    from deepspeed.utils import groups

    groups._init_tp_mesh_device(tensor_model_parallel_size=model_parallel)
    data, tensor = groups._DATA_PARALLEL_GROUP, groups._TENSOR_MODEL_PARALLEL_GROUP
    if dist.get_world_size(tensor) != model_parallel:
        raise UserError(
            f"hardware.model_parallel={model_parallel}: these processes were grouped by "
            f"{dist.get_world_size(tensor)} for a run before; start others for it."
        )
    return Ranks(dist.get_rank(), size, model_parallel, tensor, data)


def connect(device: str) -> None:
    """Join the process group, once, by RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.

    A process that no launcher started is a group of its own.
    """
    if "WORLD_SIZE" not in os.environ:
        alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
        os.environ.update({**alone, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"})
    deepspeed = imported(device)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "nccl" if device == "cuda" else "gloo"
    deepspeed.init_distributed(backend, auto_mpi_discovery=False, timeout=_PATIENCE, verbose=False)


def imported(device: str) -> Any:
    """Return DeepSpeed, quiet, set to a device.

    Raises:
        UserError: it is not installed.
    """
    os.environ["DS_ACCELERATOR"] = device
    try:
        import deepspeed
    except ImportError as error:
        raise UserError(
            "hardware=zero1 needs a package; type pip install 'ptrun[deepspeed]'."
        ) from error
    from deepspeed.ops import __compatible_ops__
    from deepspeed.utils import logger

    logger.setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*all_gather_into_tensor", FutureWarning)  # DeepSpeed's call
    __compatible_ops__["deepspeed_shm_comm"] = False  # gloo does without; it would be compiled now
    return deepspeed
