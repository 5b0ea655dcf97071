"""Signs before training that a run will not learn what was meant, each with a remedy."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from ptrun.backbone.files import SHIPPED
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.files import read_json
from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.readout.head import row_limit
from ptrun.task.base import Task

_FAR = 100  # times the usual rate, or less than its hundredth part
_CUT = 0.1  # of the texts
_READ = 1000  # texts, of up to millions


def doubts(
    method: Method, train: Sequence[Features], rate: float, usual: Mapping[str, float]
) -> list[str]:
    """Return the warnings about a run: its method, encoded training examples and `train.lr`.

    `usual` holds the learning rates of the backbone's file by what is trained.
    """
    found = [toy(method.backbone, method.task), unread_mean(method)]
    if not method.readout.windows:
        found.append(cut_texts(train, method.task, method.room()))
    if method.learned():
        found.append(far_rate(rate, usual, tunes=method.tunes_backbone))
    return [text for text in found if text]


def toy(backbone: PretrainedBackbone, task: Task) -> str | None:
    """Return a warning if a shipped toy model reads real text."""
    shipped = backbone.folder is not None and backbone.folder.is_relative_to(SHIPPED)
    if not shipped or task.name.startswith(("pocket_", "ppt_")):
        return None
    return (
        f"backbone={backbone.name} is a toy that knows a small generated world, so scores on "
        f"task={task.name} will be low; type backbone=NAME for a real model (ptrun list backbone), "
        "or backbone.path=FOLDER"
    )


def unread_mean(method: Method) -> str | None:
    """Return a warning if a head reads one token of a model that was trained for their mean."""
    backbone, pooler = method.backbone, method.readout.pooler or "mean"
    if pooler == "mean" or backbone.folder is None or not trained_for_mean(backbone.folder):
        return None
    return (
        f"backbone={backbone.name} was trained for the mean of its tokens, and "
        f"readout.pooler={pooler} reads one; try readout.pooler=mean"
    )


def trained_for_mean(folder: Path) -> bool:
    """Return whether a model was trained for the mean of its tokens, as sentence embeddings are.

    Such a folder has `1_Pooling/config.json`, which the sentence-transformers library writes.
    """
    try:
        content = read_json(folder / "1_Pooling" / "config.json", links=True)
        return content["pooling_mode_mean_tokens"] is True
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return False


def far_rate(rate: float, usual: Mapping[str, float], *, tunes: bool) -> str | None:
    """Return a warning if a rate is 100 times above or below the backbone's usual rates.

    Args:
        rate: `train.lr`.
        usual: rates of the backbone's file, for `prompt`, `encoder` and `full`.
        tunes: whether the backbone is tuned.
    """
    own = [value for key, value in usual.items() if (key == "full") is tunes]
    if not own or min(own) / _FAR < rate < max(own) * _FAR:
        return None
    side, near = ("above", max(own)) if rate > max(own) else ("below", min(own))
    return f"train.lr={rate:g} is far {side} the usual rate of this backbone; try train.lr={near:g}"


def cut_texts(features: Sequence[Features], task: Task, room: int) -> str | None:
    """Return a warning if more than 10 % of the first 1,000 texts fill the limit.

    Args:
        features: encoded training examples.
        task: its `max_tokens` is one limit.
        room: the other limit, the positions that the prompt leaves.
    """
    limit = row_limit(task, room)
    own = list(islice(features, _READ))
    full = sum(any(len(row.ids) >= limit for row in one.rows) for one in own)
    if full <= _CUT * len(own):
        return None
    remedy = f"up to {room} fit: type task.max_tokens=N"
    if limit == room:
        remedy = "the backbone has no more positions for them"
    return f"{full} of {len(own)} texts fill the limit of {limit} tokens and may be cut; {remedy}"
