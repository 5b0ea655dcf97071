"""The text part of a checkpoint that also reads images or sound: its configuration and tensors.

    ptrun backbone.path=FOLDER        # Gemma 3, Mistral 3, Qwen-VL, LLaVA, ...

transformers says which part of a configuration reads text. Where its tensors are in the files, and
which tensors belong to other parts, the names of the tensors say.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ptrun.errors import UserError

_LOG = logging.getLogger(__name__)
_FILLED = ("pad_token_id", "bos_token_id", "eos_token_id", "dtype", "quantization_config")


def text_config(place: object, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of the text part; the same one if there is no other part.

    What only the whole states is added: special tokens, precision, whether the output is the word
    embeddings. `text_of` has the type of the whole. `place` is for messages.

    Raises:
        UserError: transformers cannot read it.
    """
    content = dict(config)
    parts = [key for key, part in content.items() if key.endswith("_config") and part]
    if not any(isinstance(content[key], dict) for key in parts if key != _FILLED[-1]):
        return content
    from transformers import CONFIG_MAPPING, AutoConfig
    from transformers.models.auto import modeling_auto as auto

    kind = str(content.pop("model_type", None))
    if kind not in CONFIG_MAPPING:
        return dict(config)
    try:
        whole = AutoConfig.for_model(kind, **content)
        part = whole.get_text_config()
    except Exception as error:  # the library raises what it meets first
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        raise UserError(f"{place}: cannot be read as a model of type {kind} ({reason}).") from error
    if part is whole:
        return dict(config)
    text: dict[str, Any] = json.loads(part.to_json_string(use_diff=False))
    for key in _FILLED:
        if text.get(key) is None and config.get(key) is not None:
            text[key] = config[key]
    text["tie_word_embeddings"] = getattr(
        whole, "tie_word_embeddings", getattr(part, "tie_word_embeddings", True)
    )
    tables = (
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    )
    names = [table[part.model_type] for table in tables if part.model_type in table]
    if not names and kind in auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES:
        names = _classes(type(part))
    text |= {"model_type": part.model_type, "text_of": kind, "architectures": names[:1]}
    return text


def _classes(config_class: Any) -> list[str]:
    """Return the model classes of a text part, that with an output head first."""
    module = import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    names = [
        name
        for name, kind in vars(module).items()
        if getattr(kind, "config_class", None) is config_class and kind.__module__ == module.__name__
    ]
    ends = "ForCausalLM", "TextModel"
    return [name for end in ends for name in names if name.endswith(end)]


def text_tensors(place: object, tensors: Mapping[str, Any], model: Any) -> dict[str, Any]:
    """Return the tensors of the text part, under the names that its model has.

    The text part is where one prefix completes names of the model's body, among them the word
    embeddings. The output head is beside the body or above it. The log counts all other tensors.

    Raises:
        UserError: no part has the word embeddings, or two parts have.
    """
    base = f"{model.base_model_prefix}."
    parameters = dict(model.named_parameters(remove_duplicate=False))
    body = {name.removeprefix(base) for name in parameters if name.startswith(base)}
    words = model.get_input_embeddings().weight
    tables = [n.removeprefix(base) for n, p in parameters.items() if p is words and n[: len(base)] == base]
    # 1) the prefix that completes the most names
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
        names = ", ".join(starts[start] for start in most) or "none of them"
        raise UserError(
            f"{place}: {len(tensors)} tensors, and {names} can be {tables[0]} {shape}, the word "
            "embeddings of the text part. Exactly one must be; copy the whole model again, or "
            "use one whose text part has the sizes in config.json."
        )
    # 2) its tensors, and those of the head
    start, kept = most[0], {name.partition(".")[0] for name in body}
    names = {
        name: base + name.removeprefix(start)
        for name in tensors
        if name.startswith(start) and name.removeprefix(start).partition(".")[0] in kept
    }
    above = [start[: match.end()] for match in re.finditer(r"\.", start)][::-1]
    for head in parameters.keys() - {base + name for name in body}:
        if stored := next((a + head for a in (*above, "") if a + head in tensors), None):
            names[stored] = head
    if rest := [name for name in tensors if name not in names]:
        parts = sorted({name.removeprefix("model.").partition(".")[0] for name in rest})
        _LOG.info(
            "%s: %d of %d tensors are of other parts than the text (%s), and are not read",
            place,
            len(rest),
            len(tensors),
            ", ".join(parts[:3]),
        )
    return {names[name]: tensors[name] for name in tensors if name in names}
