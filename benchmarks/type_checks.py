"""The checks of `model_types.py`: a function for each column of its table."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from running import HERE
from torch import Tensor

sys.path.insert(0, str(HERE.parent))

from ptrun.backbone import proof
from ptrun.backbone.base import Positions
from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.backbone.joining import join, split
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.tensor_parallel import cuts_of
from ptrun.errors import UserError
from ptrun.method.adapter import Adapter
from ptrun.method.base import Method, check_pair
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.readout.choose import AUTO
from tests.backbone import test_generation as writing
from tests.backbone import types
from tests.backbone.quantization import folders
from tests.backbone.test_closed import outputs, stock
from tests.exporting.runs import compared, moved, opinions
from tests.families import FAMILIES, PaperBackbone
from tests.readings import reading
from tests.small_runs import conll03, fitted, member, sst2

torch.set_num_threads(1)  # tiny tensors: a second thread only waits
METHODS: dict[str, tuple[type[Method], dict[str, Any]]] = {
    "input vectors": (PromptTuning, {"length": 3}),
    "prefixes": (PTuningV2, {"length": 3}),
    "LoRA": (LoRA, {"rank": 2, "alpha": 4}),
    "adapters": (Adapter, {"hidden": 4}),
}
EQUAL = 1e-4
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [8, 8]}
PUBLISHED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gpt_oss": (transformers.Mxfp4Config, folders.mxfp4, {"quant_method": "mxfp4"}),
    **dict.fromkeys(
        ("deepseek_v3", "qwen3", "qwen3_moe", "mistral3"),
        (transformers.FineGrainedFP8Config, partial(folders.fp8, block=(8, 8)), FP8),
    ),
    **dict.fromkeys(
        ("llama", "mistral", "qwen2", "gemma2", "gemma3", "phi3"),
        (transformers.BitsAndBytesConfig, None, NF4),
    ),
}
"""How public weights of a type come: transformers' settings, what makes codes, config.json's."""


@dataclass
class Tiny:
    """A tiny random model of a type."""

    kind: str
    place: Path
    data: Path

    def __post_init__(self) -> None:
        self.folder = self.place / self.kind
        types.write(self.kind, self.folder)

    def loaded(self, quantization: str = "none", folder: Path | None = None) -> PretrainedBackbone:
        """Return the backbone, read anew."""
        backbone = PaperBackbone(name=self.kind, path=str(folder or self.folder), dtype="fp32")
        backbone.quantize(quantization)
        backbone.read_weights()
        return backbone

    def stock(self, folder: Path | None = None, **options: Any) -> tuple[Any, Any]:
        """Return the model of transformers, and the part of it that reads the text."""
        name = json.loads((self.folder / "config.json").read_text())["architectures"][0]
        options = {"dtype": torch.float32, **options}
        model = getattr(transformers, name).from_pretrained(folder or self.folder, **options).eval()
        if self.kind in types.MULTIMODAL:
            return model, model.get_decoder()
        return model, model.get_encoder() if model.config.is_encoder_decoder else model.base_model

    def task(self, make: Callable[..., Any] = conll03, *options: str) -> Any:
        """Return a task, in the languages of a model that reads some."""
        task = make(self.data, *options)
        if self.kind in types.TRANSLATE:
            _, task.source_language, task.target_language = types.TRANSLATE[self.kind]
        return task

    def maker(
        self, name: str, backbone: Any, task: Any, reading: Any = None, **options: Any
    ) -> Callable[..., Any]:
        """Return what makes a method; refuse what ptrun refuses."""
        kind, usual = METHODS[name]
        check_pair(kind, AUTO, {}, backbone, task)
        return lambda backbone, task: kind(backbone, task, reading, **usual, **options)


def cell(check: Callable[[], str]) -> str:
    """Return an outcome, or why it is refused or fails."""
    try:
        return check()
    except UserError as error:
        return "refused: " + " ".join(str(error).split("\n")[0].split())
    except Exception as error:  # a row says what is broken, and the others go on
        return f"FAILS: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def far(ours: Tensor, theirs: Tensor) -> str:
    """Return how far numbers are from others, as a share of the largest."""
    share = float((ours - theirs).detach().abs().max() / theirs.detach().abs().max())
    return f"{share:.0e}" if share <= EQUAL else f"FAILS: differs by {share:.0e}"


def proven(tiny: Tiny) -> str:
    """Return how it is read, and the largest difference in the proof.

    `entry` of ptrun, `traced` pass or `closed` layers; `-` is an attention of its own, which
    ptrun's tests compare.
    """
    backbone = tiny.loaded()
    family = backbone.architecture
    how = "closed" if family.closed else "traced" if family.probed else "entry"
    differs = family.relative or (family.attention and not family.closed)  # as in `ptrun doctor`
    if differs or tiny.kind in FAMILIES:
        return f"{how}, -"
    checks = proof.prove(backbone)
    if wrong := [check for check in checks if not check.passed]:
        return f"FAILS: {wrong[0].name}: {wrong[0].far:.0e} {wrong[0].where}"
    return f"{how}, {max(check.far for check in checks[:-1]):.0e}"


def trained(tiny: Tiny, name: str, task: Any = None, **options: Any) -> str:
    """Return whether two steps move each learned tensor."""
    backbone, task = tiny.loaded(), task or tiny.task()
    maker = tiny.maker(name, backbone, task, **options)
    learner = member(maker, backbone, task, max_steps=2)
    learned = learner.method.learned()
    before = {name: tensor.detach().clone() for name, tensor in learned.items()}
    fitted([learner])
    still = [name for name, tensor in learned.items() if torch.equal(tensor, before[name])]
    return f"FAILS: two steps do not move {still[0]}" if still else "pass"


def same(tiny: Tiny, name: str) -> str:
    """Return how far the states for a head are from transformers' own, if two steps train.

    Those have the vectors before the words, or LoRA added to the weights.
    """
    outcome, backbone, task = trained(tiny, name), tiny.loaded(), tiny.task()
    if tiny.kind in FAMILIES or outcome != "pass":
        return outcome
    method = moved(tiny.maker(name, backbone, task), backbone, task)
    model, body = tiny.stock()
    words = model.get_input_embeddings()
    if isinstance(method, LoRA):
        part, start = (body, "model.") if tiny.kind in types.MULTIMODAL else (model, "")
        merged = {name.removeprefix(start): weight for name, weight in method.merged().items()}
        part.load_state_dict({**part.state_dict(), **merged})
    with torch.no_grad():
        batch, states = outputs(method, task.load("train"))
        vectors = method.exported().get("prompt.table", words.weight[:0])
        return far(states, stock(body, words, vectors, batch))


def adapters(tiny: Tiny) -> str:
    """Return whether they train behind attention and feed-forward; `pfeiffer`: the latter alone."""
    layouts = "houlsby", "pfeiffer"
    both, one = (cell(partial(trained, tiny, "adapters", layout=layout)) for layout in layouts)
    return f"pfeiffer {both}" if "refused" in both and one == "pass" else both


def heads(tiny: Tiny) -> str:
    """Return whether heads of one label a text and of one a word train over input vectors."""
    tasks = tiny.task(sst2), tiny.task()
    check = partial(trained, tiny, "input vectors", reading=reading("head"))
    outcomes = {cell(partial(check, task=task)) for task in tasks}
    return next((outcome for outcome in outcomes if outcome != "pass"), "pass")


def written(tiny: Tiny) -> str:
    """Return whether a batch writes what whole passes without a cache do, row by row."""
    backbone = tiny.loaded()
    family, rows = backbone.architecture, range(len(writing.LENGTHS))
    prompts = writing.asked(backbone, prefix=not family.bars_prefixes)
    alone = [writing.row_of(prompts, row) for row in rows]
    if family.has_blank:
        alone = [writing.in_blanks(row, backbone) for row in alone]
        prompts = writing.in_blanks(prompts, backbone)
    parts = alone if family.closed else [prompts]  # texts of closed layers: rows of one length
    decoding = Decoding(max_new_tokens=writing.NEW)
    texts = [text for part in parts for text in generate(backbone, part, decoding)]
    for text, row in zip(texts, alone, strict=True):
        wanted, closest = writing.whole_passes(backbone, row)
        if text != wanted and closest >= writing.CLOSE:
            return f"FAILS: writes {text}, and whole passes {wanted}"
    return "pass"


def shared(tiny: Tiny) -> str:
    """Return how far one pass over rows of several methods is from padded rows of each alone."""
    backbone, task = tiny.loaded(), tiny.task()
    family, inputs = backbone.architecture, []
    for name in ("input vectors", "LoRA", *([] if family.bars_prefixes else ["prefixes"])):
        kind, options = METHODS[name]
        if kind.shares({"targets": None, **options}, backbone) is not None:
            method = moved(tiny.maker(name, backbone, task), backbone, task)
            batch, _ = outputs(method, task.load("train")[len(inputs) :])
            inputs.append(method.inputs(batch))
    with torch.no_grad():
        together = split(backbone.forward(join(inputs, backbone.embed)), inputs)
        backbone.architecture = replace(family, packed=None)
        alone = [backbone.forward(part) for part in inputs]
    return far(*(torch.cat([out.hidden for out in outs]) for outs in (together, alone)))


def divided(tiny: Tiny) -> str:
    """Return whether tensor parallelism can divide its maps; data parallelism always works."""
    backbone = tiny.loaded()
    cuts_of(backbone.model, backbone.architecture, 2)
    return "pass"


def _read(backbone: PretrainedBackbone) -> tuple[Any, Any]:
    rows = replace(proof._rows(backbone, (7, 4)), decoder=None)
    at = Positions(*rows.mask.nonzero(as_tuple=True))
    logits_at = at if backbone.architecture.left_to_right else None
    with torch.no_grad():
        return rows, backbone.forward(replace(rows, hidden_at=at, logits_at=logits_at))


def quantized(tiny: Tiny) -> str:
    """Return what `hardware.quantization=int8` changes in the last states."""
    ours, exact = (_read(tiny.loaded(form))[1].hidden for form in ("int8", "none"))
    return f"{float((ours - exact).norm() / exact.norm()):.0%}"


def published(tiny: Tiny) -> str:
    """Return how far logits are from transformers' own, in the format of the public weights.

    `-`: they are public as plain numbers.
    """
    if tiny.kind not in PUBLISHED:
        return "-"
    settings, code, stated = PUBLISHED[tiny.kind]
    plain, folder = tiny.place / "plain", tiny.place / "coded"
    whole = {"intermediate_size": 64} if code else {"hidden_size": 64, "head_dim": 16}
    whole |= {} if code else {"intermediate_size": 128}  # whole blocks
    types.write(tiny.kind, plain, **whole)
    if code is None:
        config, dtype = settings(**stated), torch.bfloat16
        options = {"dtype": dtype, "device_map": {"": "cpu"}}
        shutil.copytree(plain, folder)
        tiny.stock(plain, quantization_config=config, **options)[0].save_pretrained(folder)
        model = tiny.stock(folder, **options)[0].dequantize().float()
    else:
        folders.write_coded(plain, folder, code, stated)
        if code is folders.mxfp4:  # so that the sums of a model are finite
            folders.rewrite(
                folder,
                lambda made: [t.clamp_(max=124) for name, t in made.items() if "_scales" in name],
            )
        model = tiny.stock(folder, quantization_config=settings(dequantize=True))[0]
    rows, ours = _read(tiny.loaded(folder=folder))
    with torch.no_grad():
        theirs = model(input_ids=rows.ids, attention_mask=rows.mask.long()).logits
    return far(ours.logits, theirs[rows.mask])


def exported(tiny: Tiny) -> str:
    """Return whether stock PEFT has the same logits: V (input vectors), P (prefixes), L (LoRA)."""
    family = tiny.loaded().architecture
    pattern = f"{{~sentence}} It was {{{'masks' if family.fills_masks else 'mask'}}}"
    words = family.writes_words and tiny.kind not in types.TRANSLATE
    task = tiny.task(opinions, pattern) if words else tiny.task()
    for each in (task.pvps or {}).values():
        each.setdefault("rule", "first")

    def difference(name: str) -> str:
        backbone, readout = tiny.loaded(), reading("verbalizer" if words else "head")
        method = moved(tiny.maker(name, backbone, task, reading=readout), backbone, task)
        share = compared(method, tiny.place / name, task.load("train"))[1].difference
        return "" if share <= EQUAL else "refused: the logits of stock PEFT differ"

    letters = {"input vectors": "V", "prefixes": "P", "LoRA": "L"}
    outcomes = {name: cell(partial(difference, name)) for name in letters}
    good = " ".join(letters[name] for name, outcome in outcomes.items() if not outcome)
    bad = dict.fromkeys(outcome for outcome in outcomes.values() if outcome)
    mark = next((mark for mark in ("FAILS: ", "refused: ") if mark in "".join(bad)), "")
    return f"{good} {mark}{' '.join(re.sub('(FAILS|refused): ', '', outcome) for outcome in bad)}"


CELLS: dict[str, Callable[[Tiny], str]] = {
    "read, proof": proven,
    "input vectors": partial(same, name="input vectors"),
    "prefixes": partial(trained, name="prefixes"),
    "LoRA": partial(same, name="LoRA"),
    "adapters": adapters,
    "heads": heads,
    "writing": written,
    "shared passes": shared,
    "2 ranks": divided,
    "int8": quantized,
    "as published": published,
    "PEFT": exported,
}


def row(kind: str, place: Path, data: Path) -> list[str]:
    """Return the cells of a type; `...` is its name in what ptrun says, so types share notes."""
    if kind in types.REFUSED:
        config = types.config_of(kind).to_dict()
        why = cell(lambda: str(PretrainedBackbone(name=kind, hub="a/b", config=config)))
        cells = [why, *"-" * (len(CELLS) - 1)]
    else:
        tiny = Tiny(kind, place, data)
        cells = [cell(partial(check, tiny)).strip() for check in CELLS.values()]
    name = rf"\b{re.escape(kind.removesuffix(kind.partition('llama')[2]))}(_text)?(?![a-z])"
    shown = f"text of {kind}" if kind in types.MULTIMODAL else kind
    return [shown, *(re.sub(name, "...", outcome) for outcome in cells)]
