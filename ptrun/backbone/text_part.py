"""The text part of a checkpoint that also reads images or sound: Gemma 3, Qwen-VL, LLaVA, ...

transformers says which part of a configuration reads text. Which tensors of the files belong to it
is read from their names.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from ptrun.errors import UserError

_LOG = logging.getLogger(__name__)
_log_once = cache(lambda line: _LOG.info("%s", line))
_OUTER = ("pad_token_id", "bos_token_id", "eos_token_id", "dtype", "quantization_config")

_UNSCALED = ("aya_vision", "cohere2_vision")
"""Types whose whole model leaves out the scale of logits that its text class has (5.23)."""


def text_config(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the text part, or `config` itself if there is no other part.

    It has what only the whole states: special tokens, whether the output is the word embeddings.
    Its `text_of` is the type of the whole. A configuration that transformers cannot read is refused
    with the `name` of the backbone.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    from ptrun.backbone.family import reading

    content = dict(config)
    kind = str(content.pop("model_type", None))
    if kind not in CONFIG_MAPPING:
        return dict(config)
    with reading(name, "config.json"):
        whole: Any = AutoConfig.for_model(kind, **content)
        part: Any = whole.get_text_config()
        text: dict[str, Any] = part.to_dict()
    if part is whole:
        return dict(config)
    text |= {key: config[key] for key in _OUTER if key in config and text.get(key) is None}
    tied = getattr(whole, "tie_word_embeddings", None)
    tied = getattr(part, "tie_word_embeddings", False) if tied is None else tied
    text["tie_word_embeddings"] = bool(tied)
    text |= {"logit_scale": 1.0} if kind in _UNSCALED else {}
    return text | {"model_type": part.model_type, "text_of": kind, "architectures": None}


def text_tensors(folder: object, tensors: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return the tensors of the text part, under the names that its model has.

    They follow the prefix that completes the most names of the model's body, among them the word
    embeddings. The output head is beside the body or above it. The log counts all other tensors.

    Raises:
        UserError: no prefix has the word embeddings, or two are equal.
    """
    base, words = f"{model.base_model_prefix}.", model.get_input_embeddings().weight
    parameters = dict(model.named_parameters(remove_duplicate=False))
    body = {name.removeprefix(base) for name in parameters if name.startswith(base)}
    tables = [n for n in body if parameters[base + n] is words]
    # 1) the prefix
    counts: Counter[str] = Counter()
    for name in tensors:
        dots = [0, *(match.end() for match in re.finditer(r"\.", name))]
        counts.update(name[:dot] for dot in dots if name[dot:] in body)
    shape = list(words.shape)
    starts = {
        start: start + table
        for start in counts
        for table in tables
        if start + table in tensors and tensors[start + table].get_shape() == shape
    }
    most = [start for start in starts if counts[start] == max(counts[s] for s in starts)]
    if len(most) != 1:
        raise UserError(
            f"backbone.path={folder}: of {len(tensors)} tensors, "
            f"{' and '.join(starts[start] for start in most) or 'none'} could be {tables[0]} "
            f"{shape}, the word embeddings of the text part. One must be: copy the model again."
        )
    # 2) the tensors after it, and the head
    start, kept = most[0], {name.partition(".")[0] for name in body}
    names = {
        name: base + name.removeprefix(start)
        for name in tensors
        if name.startswith(start) and name.removeprefix(start).partition(".")[0] in kept
    }
    above = [start[: match.end()] for match in re.finditer(r"\.", start)][::-1]
    for head in parameters.keys() - {base + name for name in body}:
        places = (place + head for place in (*above, ""))
        names |= {name: head for name in [next(filter(tensors.__contains__, places), None)] if name}
    rest = [name for name in tensors if name not in names]
    inner = "|".join(map(re.escape, above))
    parts = ", ".join(sorted({re.sub(f"^({inner})", "", n).partition(".")[0] for n in rest}))
    _log_once(f"{folder}: {len(rest)} of {len(tensors)} tensors are of {parts}, and are not read")
    return {stated: tensors[name] for name, stated in names.items()}
