"""The ranks of one run, and the messages between them.

Neighbours (0-3, 4-7, … with `model_parallel=4`) hold one model together and read the same rows.
Groups of neighbours divide the rows of a batch.
"""

import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from io import StringIO
from itertools import count
from threading import Thread
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from ptrun.backbone.injection import Division
from ptrun.errors import RunFailed, UserError

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_MEETING = timedelta(minutes=10)  # for all ranks to start and to find each other
_TOGETHER = timedelta(hours=1)  # for a message of training; ranks load at different speeds
_SILENT = 5.0  # seconds of waiting without a word
_PAUSE = 0.1  # seconds between two looks at what rank 0 has done
_blocks = count()  # of `main_first`; all ranks enter the same ones
_store: Any = None  # by which the ranks met


@dataclass(frozen=True)
class Ranks:
    """This rank and the process groups it is in; a single process by default.

    Args:
        rank, size: its index, and the number of ranks.
        model_parallel: number of ranks that hold one model together.
        tensor, data: the group that holds its model, and the group that divides the rows.
        store: by which the ranks met, if there are several.
    """

    rank: int = 0
    size: int = 1
    model_parallel: int = 1
    tensor: Any = None
    data: Any = None
    store: Any = None

    @property
    def main(self) -> bool:
        """Whether this rank writes the results."""
        return self.rank == 0

    @property
    def data_parallel(self) -> int:
        """Number of groups that divide the rows."""
        return self.size // self.model_parallel

    @property
    def share(self) -> int:
        """Index of this rank's share of the rows."""
        return self.rank // self.model_parallel

    def division(self, device: str) -> Division | None:
        """Return this rank's part of the model, or None if it holds the whole."""
        if self.model_parallel == 1:
            return None
        place = self.rank % self.model_parallel
        return Division(place, self.model_parallel, self.tensor, device)

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def decided(self, numbers: Sequence[int]) -> list[int]:
        """Return rank 0's numbers on every rank; one message, as it is sent after each step."""
        if self.size == 1:
            return list(numbers)
        box = torch.tensor(numbers, dtype=torch.int64, device=_device())
        dist.broadcast(box, src=0)
        decision: list[int] = box.tolist()
        return decision

    def each(self, value: T) -> list[T]:
        """Return the values of all ranks, in order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run a block on rank 0 first, so that the others find the files it wrote.

        It may take hours, so they wait outside of any collective, and hear signals.
        """
        key = f"ptrun/first/{next(_blocks)}"
        store = self.store if self.size > 1 else None
        while store is not None and not self.main and not store.check([key]):
            time.sleep(_PAUSE)
        yield
        if store is not None and self.main:
            store.set(key, "done")

    def total(self, values: list[float]) -> list[float]:
        """Return sums over the shares."""
        if self.data_parallel == 1:
            return values
        shares = _gathered(torch.tensor(values, dtype=torch.float64), self.data)
        summed: list[float] = shares.sum(dim=0).tolist()
        return summed

    def merged(self, predictions: Mapping[Any, T]) -> dict[Any, T]:
        """Return the predictions of all shares, each from the first rank of its group.

        All ranks then decide by the same predictions, even if the last bits of logits differ.
        """
        shares = self.each(dict(predictions))[:: self.model_parallel]
        return {key: value for share in shares for key, value in share.items()}

    def check_same(self, digest: int, step: int) -> None:
        """Fail the run if ranks which hold one model together read different rows."""
        if self.model_parallel == 1:
            return
        digests = _gathered(torch.tensor([digest]), self.tensor).flatten().tolist()
        odd = [place for place, other in enumerate(digests) if other != digests[0]]
        if odd:
            rank = self.rank - self.rank % self.model_parallel
            raise RunFailed(
                f"rank {rank + odd[0]} read other rows than rank {rank} at step {step}, but they "
                "hold one model together; make code and data the same on all machines."
            )


def _gathered(message: Tensor, group: Any) -> Tensor:
    """Return the messages of all ranks of a group, `[ranks, ...]`."""
    message = message.to(_device())
    messages = [torch.empty_like(message) for _ in range(dist.get_world_size(group))]
    dist.all_gather(messages, message, group=group)
    return torch.stack(messages)


def _device() -> str:
    """Return where the tensors of messages are: NCCL sends from GPUs alone."""
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


ALONE = Ranks()


def joined(model_parallel: int, device: str) -> Ranks:
    """Join the process group; return its ranks, which are a multiple of `model_parallel`."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size % model_parallel:
        raise UserError(
            f"hardware.model_parallel={model_parallel}: {size} processes were started; start a "
            f"multiple of {model_parallel}, or set hardware.model_parallel."
        )
    connect(device)
    from deepspeed.utils import groups

    groups._init_tp_mesh_device(tensor_model_parallel_size=model_parallel)  # AutoTP alone calls it
    data, tensor = groups._DATA_PARALLEL_GROUP, groups._TENSOR_MODEL_PARALLEL_GROUP
    if dist.get_world_size(tensor) != model_parallel:
        raise UserError(
            f"hardware.model_parallel={model_parallel}: an earlier run grouped these processes by "
            f"{dist.get_world_size(tensor)}; start new processes."
        )
    return Ranks(dist.get_rank(), size, model_parallel, tensor, data, _store)


def connect(device: str) -> None:
    """Join the process group by RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.

    A process that no launcher started is its own group. Ranks that do not meet are refused.
    """
    if "WORLD_SIZE" not in os.environ:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", **address})
    if device == "cuda":
        torch.cuda.set_device(own_gpu(os.environ, torch.cuda.device_count()))
    deepspeed = imported(device)
    backend = "nccl" if device == "cuda" else "gloo"
    if not dist.is_initialized():
        _meet(backend)
    elif _store is None:
        raise UserError(
            "hardware=zero1: these processes joined a process group before; start new processes."
        )
    deepspeed.init_distributed(backend, auto_mpi_discovery=False, verbose=False)


def own_gpu(env: MutableMapping[str, str], visible: int) -> int:
    """Return the index of this rank's GPU, and set LOCAL_RANK, by which DeepSpeed chooses it.

    `srun --gpus-per-task=1` shows each rank its own GPU alone, as index 0. More ranks than GPUs are
    refused.
    """
    local = int(env["LOCAL_RANK"])
    if visible == 1 and env.get("SLURM_LOCALID") == env["LOCAL_RANK"]:
        env["LOCAL_RANK"], local = "0", 0
    if local >= visible:
        raise UserError(
            f"LOCAL_RANK={local}, but {visible} GPUs are visible to this rank; start one rank for "
            "each GPU of a machine, and check CUDA_VISIBLE_DEVICES."
        )
    return local


def _meet(backend: str) -> None:
    """Join the process group; signals work meanwhile, and long waiting is told."""
    raised: list[BaseException] = []

    def join() -> None:
        global _store
        try:
            _store, rank, size = next(rendezvous("env://", timeout=_MEETING))
            dist.init_process_group(
                backend, store=_store, rank=rank, world_size=size, timeout=_TOGETHER
            )
        except BaseException as error:
            raised.append(error)

    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    rank, size, host, port = map(os.environ.__getitem__, names)
    minutes = _MEETING.total_seconds() // 60
    joining = Thread(target=join, daemon=True)  # C++ code would not hear signals
    joining.start()
    joining.join(_SILENT)
    if joining.is_alive():
        message = "rank %s waits for all %s ranks to meet at %s:%s, at most %d minutes"
        _LOG.warning(message, rank, size, host, port, minutes)
    while joining.is_alive():
        joining.join(1.0)
    if not raised:
        return
    text = str(raised[0])
    if "EADDRINUSE" in text or "address already in use" in text:
        raise UserError(
            f"MASTER_PORT={port}: another program uses this port of rank {rank}'s machine; set "
            "MASTER_PORT to a free one."
        ) from raised[0]
    if "imed out" in text or "timeout" in text or isinstance(raised[0], dist.DistNetworkError):
        raise UserError(
            f"rank {rank}: the {size} ranks did not meet at {host}:{port} within {minutes:.0f} "
            "minutes. One of them did not start, or cannot reach that address; look at the output "
            "of the others."
        ) from raised[0]
    raise raised[0]


def imported(device: str) -> Any:
    """Import DeepSpeed for a device, without its log messages; tell how to install it."""
    os.environ["DS_ACCELERATOR"] = device
    try:
        with redirect_stdout(StringIO()):  # it prints which of its own kernels cannot be compiled
            import deepspeed
            from deepspeed.ops import __compatible_ops__
            from deepspeed.utils import logger
    except ImportError as error:
        raise UserError(
            "hardware=zero1 needs a package; type pip install 'ptrun[deepspeed]'."
        ) from error
    logger.setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*all_gather_into_tensor", FutureWarning)  # DeepSpeed's call
    __compatible_ops__["deepspeed_shm_comm"] = False  # gloo works without it; no compilation now
    return deepspeed
