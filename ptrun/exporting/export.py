"""Export a finished run as a folder that PEFT, transformers or vLLM take without ptrun."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.exporting import stock_form as stock
from ptrun.exporting import vllm
from ptrun.exporting.stock_form import PeftForm, cannot, form_of, rows_reason, whole_of
from ptrun.folder import request
from ptrun.folder.find import RunFolder
from ptrun.hub.staging import check_new, staging
from ptrun.importing.hf import import_hf
from ptrun.method.base import Method
from ptrun.method.peft import need_peft
from ptrun.readout.base import Batch, collate
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import Head
from ptrun.readout.languages import tokenizer_of
from ptrun.runs.examples import split_of
from ptrun.runs.finished import Finished
from ptrun.runs.rerun import plan_again
from ptrun.task.dataset import MESSAGES
from ptrun.types import Example

Kind = Literal["peft", "transformers", "vllm"]
"""What reads the folder."""
_KINDS: Mapping[Kind, tuple[Callable[..., Any], Callable[..., None], Callable[..., Any]]] = {
    "peft": (form_of, stock.write, stock.load),
    "transformers": (whole_of, stock.write_whole, stock.load_whole),
    "vllm": (vllm.form_of, vllm.write, vllm.load),
}
"""The form of a method there, what writes it, and what loads it as its readers do."""

TOLERANCE = 1e-4
_LARGE = 10.0  # larger logits have larger rounding errors in fp32
_TOGETHER, _MOST = 16, 1000


@dataclass(frozen=True)
class Parity:
    """How far an exported folder is from its run."""

    difference: float
    """The largest absolute difference of two logits."""
    largest: float
    """The largest absolute logit."""
    examples: int
    """The number of dev examples."""
    logits: int

    @property
    def equal(self) -> bool:
        """Whether the difference is at most 1e-4, or 1e-5 of the largest logit if that is more."""
        return self.difference <= TOLERANCE * max(1.0, self.largest / _LARGE)


@torch.no_grad()
def parity(method: Method, model: Any, form: PeftForm, examples: Sequence[Example]) -> Parity:
    """Return the difference between a loaded method and the stock model of its folder.

    Both read at most 1,000 dev examples, in an order that saves padding.
    """
    if not examples:
        raise UserError("export: this run has no dev examples, on which the logits are compared.")
    difference, largest, logits = 0.0, 0.0, 0
    features = method.encode(examples[:_MOST])
    features.sort(key=lambda example: max(len(row.ids) for row in example.rows))
    for start in range(0, len(features), _TOGETHER):
        device = torch.device(method.backbone.model.device)
        batch = collate(features[start : start + _TOGETHER], None, device)
        if reason := rows_reason(batch, form):
            raise cannot(reason)
        # the run's logits where it reads, [K, C] or [K, V]
        output = method.backbone.forward(method.inputs(batch))
        readout, ours = method.readout, output.logits
        if isinstance(readout, Head):
            ours = readout.scores(output, batch)
        assert ours is not None
        # those of the stock model, whose output has a prompt's vectors too
        answered = model(**stock_inputs(batch, form))
        theirs = getattr(answered, "logits", answered)
        if theirs.dim() > 2:  # else one row of labels a text
            theirs = theirs[batch.reads.rows, batch.reads.columns + form.shift]
        difference = max(difference, float((ours.float() - theirs.float()).abs().max()))
        largest = max(largest, float(ours.abs().max()))
        logits += ours.numel()
    return Parity(difference, largest, len(features), logits)


def stock_inputs(batch: Batch, form: PeftForm) -> dict[str, Tensor]:
    """Return what the stock model reads: the text without vectors, and the decoder's start."""
    grids = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
    if batch.types is not None:
        grids["token_type_ids"] = batch.types
    inputs = {name: grid[:, form.cut :] for name, grid in grids.items()}
    if batch.decoder is not None and (form.reader.words or form.reader.head):
        assert batch.decoder_mask is not None
        inputs["decoder_input_ids"] = batch.decoder
        inputs["decoder_attention_mask"] = batch.decoder_mask.long()
    return inputs


def export(
    run: Finished, typed: Sequence[str], out: Path, kind: Kind = "peft"
) -> tuple[str, Parity]:
    """Write a run to a new folder, after its logits were compared with the stock model's.

    Returns a line about it, and how far it is from the run.

    Args:
        run: a finished run.
        typed: `KEY=VALUE` arguments, for the examples.
        out: a new folder. It appears complete, or not at all.
        kind: what reads the folder: an adapter, a tuned backbone, or vectors with a client.
    """
    if kind == "peft":
        need_peft("export --to peft")
    check_new(out)
    # 1. What is refused before weights are read
    if run.parts != [""]:
        raise cannot(f"it learned {len(run.parts)} prompts, one for each of {run.parts[0]}, ...")
    if "+" in run.done.manifest["backbone"]["weights"]:
        raise cannot("its backbone was tuned by another run, so no published checkpoint fits.")
    if run.done.config["backbone"].get("layer_norm_eps") is not None:
        raise cannot("backbone.layer_norm_eps differs from the checkpoint's.")
    # 2. The files, what stock classes read of them, and the card
    examples = _dev(run, typed)
    (method,) = run.load().values()
    form_maker, write, load = _KINDS[kind]
    form, base = form_maker(method), read_from(run.backbone)
    tensors = [*form.tensors.values()]
    if form.peft_type == stock.WHOLE:
        tensors += method.backbone.model.parameters()
    size = sum(4 * tensor.numel() for tensor in tensors)
    with staging(out, size) as folder, _plain_weights(method.backbone):
        tokenizer_of(method.backbone, method.task).save_pretrained(folder)
        if MESSAGES in method.task.fields:
            chat: Any = method.readout
            (folder / "chat_template.jinja").write_text(chat.chat.text, encoding="utf-8")
        write(folder, form, method, base)
        model = load(folder, form, method, run.engine.device)
        gap = parity(method, model, form, examples)
        if not gap.equal:
            raise UserError(
                f"export: the stock model's logits differ by {gap.difference:.1e} (largest logit "
                f"{gap.largest:.1f}). Nothing was written."
            )
        note, invented = "", _invented(examples[0])
        if kind == "vllm":
            same = vllm.alike(model, form, method, examples)
            note = f"; the clients' tokens are the run's for {same}"
            use = vllm.usage(method, base, invented, same)
        else:
            code = snippet(form, base, method, invented)
            use = f"## Load it\n\n```python\n{code}```\n\n{_reading(form, method)}"
        if run.backbone.quantized_by and form.peft_type != stock.WHOLE:
            plain = (
                f"The weights of {base} are quantized by {run.backbone.quantized_by}. In their "
                f"place load the plain ones of DIR: ptrun import hf {base} --out DIR"
            )
            note, use = f"{note}\n{plain}", f"{plain}\n\n{use}"
        if form.reader.head:
            note, use = f"{note}\n{_OWN_HEAD}", f"{_OWN_HEAD}\n\n{use}"
        (folder / "README.md").write_text(card(run, form, kind, gap, base, use), encoding="utf-8")
    differs = f"logits of {gap.examples} dev examples differ by at most {gap.difference:.1e}{note}"
    return f"{stock.title(form)}: {differs}", gap


@contextmanager
def _plain_weights(backbone: PretrainedBackbone) -> Iterator[None]:
    """Let stock classes read plain fp32 numbers of a backbone whose weights are quantized."""
    folder = backbone.folder
    if folder is None or not backbone.quantized_by:
        yield
        return
    with TemporaryDirectory(prefix="ptrun-") as place:
        backbone.folder = Path(place, "plain")
        try:
            import_hf(folder, backbone.folder, dtype="fp32")
            yield
        finally:
            backbone.folder = folder


_OWN_HEAD = (
    "The head is in head.safetensors, and stock classes do not find it: they draw a random one. "
    "Load it with load.py."
)


def _invented(example: Example) -> Example:
    """Return an example of the same form without the user's texts, for a card that is public."""

    def invented(value: Any, text: str = "An example text.") -> Any:
        if isinstance(value, Mapping):
            return {key: v if key == "role" else invented(v) for key, v in value.items()}
        if isinstance(value, list | tuple):
            return [invented(inside, "example") for inside in value]
        return text if isinstance(value, str) else value

    return replace(example, fields=invented(example.fields))


def _dev(run: Finished, typed: Sequence[str]) -> Sequence[Example]:
    """Return the dev examples of the run."""
    old = RunFolder(run.folder, run.done)
    try:
        return split_of(plan_again(old, typed, "export"))[0].dev
    except UserError as error:
        raise UserError(
            f"export {run.folder}: logits are compared on the run's dev examples, and these cannot "
            f"be read: {error}"
        ) from error


# The model card of an exported run, made of its manifest.

_NAME = re.compile(r"[^\w.+-]+", re.ASCII)
_LOADERS: Mapping[Kind, str] = {
    "peft": "Stock PEFT and transformers loaded this folder.",
    "transformers": "Stock transformers loaded this folder.",
    "vllm": "Stock transformers read the embeddings that this folder's client sends.",
}
_CARD = """\
---
library_name: {kind}
{base_model}license: unknown
tags:
- {kind}
- ptrun
- {names[method]}
- {names[task]}
---

# {names[method]} on {names[backbone]} for {names[task]}

{about}

{use}

## Scores

| split | metric | value |
|---|---|---|
{scores}

Setting `{names[setting]}`, protocol `{names[protocol]}`, seed {done.seed}; one run. \
Examples: {counts}.

## Parity

{loader} On {gap.examples} dev examples of the run, {gap.logits:,} logits in fp32 differ from the \
run's by at most {gap.difference:.1e}. The largest logit is {gap.largest:.2f}.

## How it was made

```bash
{command}
```

Run `{done.run_id}`; backbone weights `{weights}`; data `{data}`. Versions: {versions}. All options:

```json
{options}
```
"""


def card(run: Finished, form: PeftForm, kind: Kind, gap: Parity, base: str, use: str) -> str:
    """Return the card of a folder; `use` says how to load it."""
    done, learned = run.done, run.done.learned_parameters
    about = (
        f"A `{form.peft_type}` adapter that ptrun trained: {learned['prompt']:,} parameters in the "
        f"adapter and {learned['head']:,} in its head. The backbone is frozen. Its licence and "
        "that of the data apply; no licence was chosen for the adapter."
    )
    if form.peft_type == stock.WHOLE:
        about = (
            f"A model that ptrun tuned: {learned['total']:,} parameters. The licence of the "
            "backbone and that of the data apply; no licence was chosen for the result."
        )
    data, versions = done.manifest.get("data", {}), dict(done.manifest.get("versions", {}))
    if kind == "peft":
        versions["peft"] = version("peft")
    # without defaults that name classes
    options: dict[str, Any] = {
        part: {k: v for k, v in done.config[part].items() if k != "_target_" and v is not None}
        for part in ("method", "readout")
    }
    options |= {"train": done.config["train"], "start": done.manifest.get("start")}
    counts = [f"{part} {data[part]['count']}" for part in ("train", "dev", "test") if part in data]
    scores = [
        f"| {_plain(part)} | {_plain(name)} | {value:.2f} |"
        for part, by_name in done.metrics.items()
        for name, value in by_name.items()
    ]
    return _CARD.format(
        **{"kind": kind, "about": about, "use": use, "done": done, "gap": gap},
        base_model=f"base_model: {json.dumps(base)}\n" if base == run.backbone.hub else "",
        names={group: _plain(name) for group, name in done.names.items()},
        scores="\n".join(scores),
        counts=", ".join(counts),
        loader=_LOADERS[kind],
        command=request.command(request.read(run.folder)),
        weights=done.manifest["backbone"]["weights"],
        data=done.config["data"],
        versions=", ".join(f"{_plain(n)} {_plain(v)}" for n, v in versions.items()),
        options=json.dumps(options, indent=1),
    )


def read_from(backbone: PretrainedBackbone) -> str:
    """Return where a backbone was read: a hub id, or a folder from the root."""
    if backbone.repository and backbone.hub:
        return backbone.hub
    return str(Path(backbone.folder or backbone.name).resolve())


def _plain(text: str) -> str:
    """Return text of a run without what is YAML or Markdown."""
    return _NAME.sub("_", str(text))[:80]


def snippet(form: PeftForm, base: str, method: Method, example: Example) -> str:
    """Return Python code for stock PEFT and transformers; it prints the logits of one example.

    With `load.py` it prints the probability of each label.
    """
    if form.reader.head:
        texts = "".join(f", {example.fields[name]!r}" for name in method.task.fields)
        return (
            "from load import answer, load  # the file beside this one\n\n"
            "model, tokenizer = load()\n"
            f"print(answer(model, tokenizer{texts}))\n"
        )
    labels = "".join(f", {k}={v!r}" for k, v in stock.named_labels(form.reader).items())
    commit = method.backbone.commit if base == method.backbone.hub else None
    labels += f", revision={commit!r}" if commit else ""
    features = method.encode([example])
    if method.readout.writes:
        features = [method.readout.prompt(feature) for feature in features]  # type: ignore[attr-defined]
    batch = collate(features, None, method.backbone.model.device)
    inputs = {name: grid.tolist() for name, grid in stock_inputs(batch, form).items()}
    lines = "".join(f"    {name!r}: torch.tensor({value}),\n" for name, value in inputs.items())
    row = batch.features[0].rows[0]
    reads = [column + form.shift for column in row.reads]
    index = "" if form.reader.task_type == "SEQ_CLS" else f"[:, {reads}]"
    auto, here = form.reader.auto, '".").eval()  # the folder of this file\n'
    loaded = f"from transformers import {auto}\n\n"
    if form.peft_type == stock.WHOLE:
        loaded += f"model = {auto}.from_pretrained({here}"
    else:
        loaded = f"from peft import PeftModel\n{loaded}"
        loaded += f"base = {auto}.from_pretrained({base!r}{labels})\n"
        loaded += f"model = PeftModel.from_pretrained(base, {here}"
    asked = f"with torch.no_grad():\n    logits = model(**inputs).logits\nprint(logits{index})\n"
    if method.readout.writes:  # greedily
        decoding: Any = method.readout.decoding  # type: ignore[attr-defined]
        options = f"max_new_tokens={decoding.max_new_tokens}, eos_token_id={list(decoding.ends)}"
        if row.decoder is not None:  # else the model's own first token comes before
            options += f", decoder_start_token_id={row.decoder[0]}"
        asked = (
            "from transformers import AutoTokenizer\n\n"
            f"written = model.generate(**inputs, {options}, do_sample=False)\n"
            'tokenizer = AutoTokenizer.from_pretrained(".")\n'
            "print(tokenizer.decode(written[0], skip_special_tokens=True))\n"
        )
    text = " ".join(method.backbone.tokenizer().decode(row.ids).replace("`", "'").split())
    return f"import torch\n{loaded}inputs = {{  # {text}\n{lines}}}\n{asked}"


def _reading(form: PeftForm, method: Method) -> str:
    """Return what the logits mean."""
    if form.reader.labels:
        unit = getattr(method.readout, "unit", None)
        if form.reader.labels == ("number",):
            return f"The answer is the logit, times {unit:g}."
        what = "word, at its first token" if form.reader.task_type == "TOKEN_CLS" else "text"
        return f"Labels of a {what}, in order: {', '.join(form.reader.labels)}."
    if MESSAGES in method.task.fields:
        return (
            "Conversations have the form of `chat_template.jinja`, the tokenizer's chat template."
        )
    assert isinstance(method.readout, Cloze)
    pvp = method.readout.pvp
    words = "" if pvp.words is None else f" The words of each label: `{json.dumps(pvp.words)}`."
    pattern = str(method.task.pvps[pvp.name]["pattern"]) if pvp.name in method.task.pvps else ""
    return f"The pattern of the text is `{pattern}` (`{pvp.name}`).{words}"
