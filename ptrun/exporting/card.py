"""The model card of an exported run, made of its manifest."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.exporting.form import Form
from ptrun.exporting.parity import Parity, stock_inputs
from ptrun.method.base import Method
from ptrun.readout.base import Batch, collate
from ptrun.readout.cloze import Cloze
from ptrun.runs.finished import Finished
from ptrun.types import Example

FILE = "README.md"
_NAME = re.compile(r"[^\w.+-]+", re.ASCII)


def write(
    folder: Path,
    run: Finished,
    form: Form,
    found: Parity,
    base: str,
    method: Method,
    example: Example,
) -> None:
    """Write the card of a folder."""
    parts = [
        _head(run, base),
        _about(run, form),
        _usage(form, base, method, example),
        _scores(run),
        _parity(found),
        _made(run),
    ]
    (folder / FILE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _head(run: Finished, base: str) -> str:
    """Return the metadata that the hub reads; the licence is the author's to choose."""
    names = plain_names(run)
    tags = "\n".join(f"- {tag}" for tag in ("peft", "ptrun", names["method"], names["task"]))
    model = f"base_model: {json.dumps(base)}\n" if base == run.backbone.hub else ""
    return f"---\nlibrary_name: peft\n{model}license: unknown\ntags:\n{tags}\n---"


def plain_names(run: Finished) -> dict[str, str]:
    """Return the names of a run's options; other characters would be YAML or Markdown."""
    return {group: _plain(name) for group, name in run.done.names.items()}


def _plain(text: str) -> str:
    """Return text of a run without what is YAML or Markdown."""
    return _NAME.sub("_", str(text))[:80]


def _about(run: Finished, form: Form) -> str:
    names, learned = plain_names(run), run.done.learned_parameters
    return (
        f"# {names['method']} on {names['backbone']} for {names['task']}\n\n"
        f"A `{form.peft_type}` adapter that ptrun trained: {learned['prompt']:,} parameters in "
        f"the adapter and {learned['head']:,} in its head. The backbone is frozen. Its licence and "
        "that of the data apply; no licence was chosen for the adapter."
    )


def _usage(form: Form, base: str, method: Method, example: Example) -> str:
    """Return code that loads the folder and answers one example, and how to read the answer."""
    return f"## Load it\n\n```python\n{snippet(form, base, method, example)}```\n\n" + _reading(
        form, method
    )


def snippet(form: Form, base: str, method: Method, example: Example) -> str:
    """Return Python code for stock PEFT and transformers; it prints the logits of one example."""
    labels = f", num_labels={len(form.reader.labels)}" if form.reader.labels else ""
    commit = method.backbone.commit if base == method.backbone.hub else None
    labels += f", revision={commit!r}" if commit else ""
    batch = collate(method.encode([example]), None, method.backbone.model.device)
    inputs = {name: grid.tolist() for name, grid in stock_inputs(batch, form).items()}
    lines = "".join(f"    {name!r}: torch.tensor({value}),\n" for name, value in inputs.items())
    return (
        "import torch\n"
        "from peft import PeftModel\n"
        f"from transformers import {form.reader.auto}\n\n"
        f"base = {form.reader.auto}.from_pretrained({base!r}{labels})\n"
        'model = PeftModel.from_pretrained(base, ".").eval()  # the folder of this file\n'
        f"inputs = {{  # {_text(method, batch)}\n{lines}}}\n"
        "with torch.no_grad():\n"
        "    logits = model(**inputs).logits\n"
        f"print(logits{_place(batch, form)})\n"
    )


def _text(method: Method, batch: Batch) -> str:
    """Return the tokens of the first row as one line of text."""
    words = method.backbone.tokenizer().decode(batch.features[0].rows[0].ids)
    return " ".join(words.replace("`", "'").split())


def _place(batch: Batch, form: Form) -> str:
    """Return the index of what the read-out reads."""
    if form.reader.task_type == "SEQ_CLS":
        return ""
    return f"[:, {[column + form.shift for column in batch.features[0].rows[0].reads]}]"


def _reading(form: Form, method: Method) -> str:
    """Return what the logits mean."""
    if form.reader.labels:
        unit = getattr(method.readout, "unit", None)
        if form.reader.labels == ("number",):
            return f"The answer is the logit, times {unit:g}."
        what = "word, at its first token" if form.reader.task_type == "TOKEN_CLS" else "text"
        return f"Labels of a {what}, in order: {', '.join(form.reader.labels)}."
    assert isinstance(method.readout, Cloze)
    pvp = method.readout.pvp
    words = "" if pvp.words is None else f" The words of each label: `{json.dumps(pvp.words)}`."
    pattern = str(method.task.pvps[pvp.name]["pattern"]) if pvp.name in method.task.pvps else ""
    return f"The pattern of the text is `{pattern}` (`{pvp.name}`).{words}"


def _scores(run: Finished) -> str:
    done = run.done
    rows = [
        f"| {_plain(part)} | {_plain(name)} | {value:.2f} |"
        for part, name, value in _metrics(done.metrics)
    ]
    data = done.manifest.get("data", {})
    counts = ", ".join(
        f"{part} {data[part]['count']}" for part in ("train", "dev", "test") if part in data
    )
    names = plain_names(run)
    return (
        "## Scores\n\n| split | metric | value |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"Setting `{names['setting']}`, protocol `{names['protocol']}`, seed {done.seed}; one run. "
        f"Examples: {counts}."
    )


def _metrics(metrics: Any) -> list[tuple[str, str, float]]:
    return [(part, name, value) for part, own in metrics.items() for name, value in own.items()]


def _parity(found: Parity) -> str:
    return (
        "## Parity\n\n"
        f"Stock PEFT and transformers loaded this folder. On {found.examples} dev examples of the "
        f"run, {found.logits:,} logits in fp32 differ from the run's by at most "
        f"{found.difference:.1e}. The largest logit is {found.largest:.2f}."
    )


def _made(run: Finished) -> str:
    import peft

    done = run.done
    versions = {**done.manifest.get("versions", {}), "peft": peft.__version__}
    listed = ", ".join(f"{_plain(n)} {_plain(v)}" for n, v in versions.items())
    groups = ("method", "backbone", "task", "setting", "protocol")
    names = plain_names(run)
    typed = " ".join(f"{group}={names[group]}" for group in groups)
    return (
        "## How it was made\n\n"
        f"```\nptrun {typed} seed={done.seed}\n```\n\n"
        f"Run `{done.run_id}`; backbone weights `{done.manifest['backbone']['weights']}`; data "
        f"`{done.config['data']}`. Versions: {listed}. All options:\n\n"
        f"```json\n{json.dumps(_options(run), indent=1)}\n```"
    )


def _options(run: Finished) -> dict[str, Any]:
    """Return the options of method and training, without defaults that name classes."""
    config = run.done.config
    method = _without_class(config["method"])
    return {
        "method": method,
        "readout": _without_class(config["readout"]),
        "train": config["train"],
        "start": run.done.manifest.get("start"),
    }


def _without_class(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "_target_" and value is not None}
