"""Export a finished run as a folder that PEFT, transformers or vLLM take without ptrun."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor

from ptrun.backbone.base import Positions
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.exporting import stock_form as stock
from ptrun.exporting import vllm
from ptrun.exporting.stock_form import PeftForm, cannot, form_of, rows_reason, whole_of
from ptrun.folder import request
from ptrun.folder.find import RunFolder
from ptrun.hub.staging import check_new, staging
from ptrun.method.base import Method
from ptrun.method.peft import need_peft
from ptrun.readout.base import Batch, collate
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import Head
from ptrun.runs.finished import Finished
from ptrun.runs.plan import plan, split_of
from ptrun.runs.rerun import again, command
from ptrun.types import Example

Kind = Literal["peft", "transformers", "vllm"]
"""What reads the folder."""

# Compares the logits of a run with those of its exported folder, on the run's own dev examples.

TOLERANCE = 1e-4
_LARGE = 10.0  # larger logits have larger rounding errors in fp32
_TOGETHER, _MOST = 16, 1000


@dataclass(frozen=True)
class Parity:
    """How far an exported folder is from its run.

    Args:
        difference: the largest absolute difference of two logits.
        largest: the largest absolute logit.
        examples: the number of dev examples.
        logits: the number of logits.
    """

    difference: float
    largest: float
    examples: int
    logits: int

    @property
    def equal(self) -> bool:
        """Whether the difference is at most 1e-4, or 1e-5 of the largest logit if that is more."""
        return self.difference <= TOLERANCE * max(1.0, self.largest / _LARGE)


def batches(method: Method, examples: Sequence[Example], form: PeftForm) -> Iterator[Batch]:
    """Yield the encoded dev examples, at most 1,000, in an order that saves padding.

    Raises:
        UserError: PEFT cannot read one of the rows as the run does.
    """
    features = method.encode(examples[:_MOST])
    features.sort(key=lambda example: max(len(row.ids) for row in example.rows))
    for start in range(0, len(features), _TOGETHER):
        batch = collate(
            features[start : start + _TOGETHER], None, torch.device(method.backbone.model.device)
        )
        if reason := rows_reason(batch, form):
            raise cannot(reason)
        yield batch


@torch.no_grad()
def parity(method: Method, model: Any, form: PeftForm, examples: Sequence[Example]) -> Parity:
    """Return the difference between a loaded method and the stock model of its folder."""
    if not examples:
        raise UserError("export: this run has no dev examples, on which the logits are compared.")
    difference = largest = 0.0
    count = logits = 0
    for batch in batches(method, examples, form):
        ours, theirs = ours_of(method, batch), theirs_of(model, batch, form)
        difference = max(difference, float((ours - theirs).abs().max()))
        largest = max(largest, float(ours.abs().max()))
        count, logits = count + len(batch.features), logits + ours.numel()
    return Parity(difference, largest, count, logits)


def ours_of(method: Method, batch: Batch) -> Tensor:
    """Return the logits of a run at the positions that it reads, `[K, C]` or `[K, V]`."""
    output = method.backbone.forward(method.inputs(batch))
    if isinstance(method.readout, Head):
        return method.readout.scores(output, batch).float()
    assert output.logits is not None
    return output.logits.float()


def theirs_of(model: Any, batch: Batch, form: PeftForm) -> Tensor:
    """Return the same logits of the stock model."""
    output = model(**stock_inputs(batch, form))
    logits = getattr(output, "logits", output).float()
    if logits.dim() == 2:  # one row of labels a text
        return logits  # type: ignore[no-any-return]
    at = moved(batch.reads, form)
    return logits[at.rows, at.columns]  # type: ignore[no-any-return]


def moved(reads: Positions, form: PeftForm) -> Positions:
    """Return positions in the stock model's output, which has a prompt's vectors too."""
    return Positions(reads.rows, reads.columns + form.shift)


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


@dataclass(frozen=True)
class Exported:
    """What was exported.

    Args:
        peft_type: PEFT's kind of adapter.
        auto: the class of transformers under it.
        parity: how far it is from the run.
        note: what else was compared.
    """

    peft_type: str
    auto: str
    parity: Parity
    note: str = ""

    def line(self) -> str:
        """Return one line about it."""
        kind = self.auto if self.peft_type == stock.WHOLE else f"{self.peft_type} on {self.auto}"
        return (
            f"{kind}: logits of {self.parity.examples} dev examples "
            f"differ by at most {self.parity.difference:.1e}{self.note}"
        )


def export(
    run: Finished, typed: Sequence[str], out: Path, base: str | None = None, kind: Kind = "peft"
) -> Exported:
    """Write a run to a new folder, after its logits were compared with the stock model's.

    Args:
        run: a finished run.
        typed: `KEY=VALUE` arguments, for the examples.
        out: a new folder. It appears complete, or not at all.
        base: the name of the backbone in the files; None is its hub id or its folder.
        kind: what reads the folder: an adapter, a tuned backbone, or vectors with a client.

    Raises:
        UserError: `kind` cannot express the run, its logits differ, or `out` exists.
    """
    if kind == "peft":
        need_peft("export --to peft")
    check_new(out)
    _check(run)
    examples = _dev(run, typed)
    (method,) = run.load().values()
    form = _FORMS[kind](method)
    base = base or read_from(run.backbone)
    with staging(out, _bytes(form, method)) as folder:
        method.backbone.tokenizer().save_pretrained(folder)
        model = _stock(folder, kind, form, run, method, base)
        gap = parity(method, model, form, examples)
        if not gap.equal:
            raise UserError(
                f"export: the stock model's logits differ by {gap.difference:.1e} (largest logit "
                f"{gap.largest:.1f}). Nothing was written."
            )
        note = ""
        if kind == "vllm":
            same = f"{vllm.alike(model, form, method, examples)} of {len(examples)}"
            note = f"; the client's tokens are the run's for {same}"
            use = vllm.usage(method, base, _invented(examples[0]), same)
        else:
            code = snippet(form, base, method, _invented(examples[0]))
            use = f"## Load it\n\n```python\n{code}```\n\n{_reading(form, method)}"
        if form.reader.head:
            note, use = f"{note}\n{_OWN_HEAD}", f"{_OWN_HEAD}\n\n{use}"
        write(folder, run, form, kind, gap, base, use)
    return Exported(form.peft_type, form.reader.auto, gap, note)


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


_FORMS: Mapping[Kind, Callable[[Method], PeftForm]] = {
    "peft": form_of,
    "transformers": whole_of,
    "vllm": vllm.form_of,
}


def _stock(
    folder: Path, kind: Kind, form: PeftForm, run: Finished, method: Method, base: str
) -> Any:
    """Write the tensors of a folder, and return the stock model that reads them."""
    device = run.engine.device
    if kind == "transformers":
        stock.write_whole(folder, form, method)
        return stock.load_whole(folder, form, device)
    if kind == "vllm":
        vllm.write(folder, form, method, base)
        return vllm.load(folder, form, method, device)
    stock.write(folder, form, run.backbone, base)
    return stock.load(folder, form, run.backbone, device)


def _check(run: Finished) -> None:
    """Refuse what is known before weights are read."""
    if run.parts != [""]:
        raise cannot(f"it learned {len(run.parts)} prompts, one for each of {run.parts[0]}, ...")
    if "+" in run.done.manifest["backbone"]["weights"]:
        raise cannot("its backbone was tuned by another run, so no published checkpoint fits.")
    if run.done.config["backbone"].get("layer_norm_eps") is not None:
        raise cannot("backbone.layer_norm_eps differs from the checkpoint's.")


def _dev(run: Finished, typed: Sequence[str]) -> Sequence[Example]:
    """Return the dev examples of the run."""
    old = RunFolder(run.folder, run.done)
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


def _bytes(form: PeftForm, method: Method) -> int:
    tensors = [*form.tensors.values()]
    if form.peft_type == stock.WHOLE:
        tensors += method.backbone.model.parameters()
    return sum(4 * tensor.numel() for tensor in tensors)


# Upload an exported run to the hub, or say what would be uploaded.

_REPO = re.compile(r"[\w.-]+/[\w.-]+")


def to_hub(run: Finished, typed: Sequence[str], repo: str, *, push: bool) -> str:
    """Export a run to a temporary folder, and with `push` upload that; return what was done.

    A new repository is private. The files name the backbone by its hub id, or by its name alone.

    Raises:
        UserError: the repository has no valid name, the run cannot be exported, or the hub refuses.
    """
    if not _REPO.fullmatch(repo):
        raise UserError(f"export --to hub {repo}: expected USER/NAME, such as ann/sst2-prompt.")
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "adapter"
        done = export(run, typed, folder, run.backbone.hub or run.backbone.name)
        files = [f"  {f.name}  {f.stat().st_size:,} bytes" for f in sorted(folder.iterdir())]
        listed = "\n".join([done.line(), *files])
        if not push:
            return f"{listed}\nNothing was uploaded. Add --push to upload these files to {repo}."
        return f"{listed}\nuploaded to {_upload(folder, repo, run.done.run_id)}"


def _upload(folder: Path, repo: str, run_id: str) -> str:
    """Upload a folder to a repository, which is made if it is missing; return its address."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        api.create_repo(repo, private=True, exist_ok=True)
        done = api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"ptrun {run_id}")
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:160]
        raise UserError(
            f"export --to hub {repo}: the hub refused ({reason}).\n"
            "Type `hf auth login` once, or set HF_TOKEN, and use a name that you may write."
        ) from error
    return str(done)


# The model card of an exported run, made of its manifest.

FILE = "README.md"
_NAME = re.compile(r"[^\w.+-]+", re.ASCII)


def write(
    folder: Path,
    run: Finished,
    form: PeftForm,
    kind: Kind,
    gap: Parity,
    base: str,
    use: str,
) -> None:
    """Write the card of a folder; `use` says how to load it."""
    parts = [
        _head(run, kind, base),
        _about(run, form),
        use,
        _scores(run),
        _parity(kind, gap),
        _made(run, kind),
    ]
    (folder / FILE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def read_from(backbone: PretrainedBackbone) -> str:
    """Return where a backbone was read: a hub id, or a folder from the root."""
    if backbone.repository and backbone.hub:
        return backbone.hub
    return str(Path(backbone.folder or backbone.name).resolve())


def _head(run: Finished, kind: Kind, base: str) -> str:
    """Return the metadata that the hub reads; the licence is the author's to choose."""
    names = plain_names(run)
    tags = "\n".join(f"- {tag}" for tag in (kind, "ptrun", names["method"], names["task"]))
    model = f"base_model: {json.dumps(base)}\n" if base == run.backbone.hub else ""
    return f"---\nlibrary_name: {kind}\n{model}license: unknown\ntags:\n{tags}\n---"


def plain_names(run: Finished) -> dict[str, str]:
    """Return the names of a run's options; other characters would be YAML or Markdown."""
    return {group: _plain(name) for group, name in run.done.names.items()}


def _plain(text: str) -> str:
    """Return text of a run without what is YAML or Markdown."""
    return _NAME.sub("_", str(text))[:80]


def _about(run: Finished, form: PeftForm) -> str:
    names, learned = plain_names(run), run.done.learned_parameters
    title = f"# {names['method']} on {names['backbone']} for {names['task']}\n\n"
    if form.peft_type == stock.WHOLE:
        return (
            f"{title}A model that ptrun tuned: {learned['total']:,} parameters. The licence of the "
            "backbone and that of the data apply; no licence was chosen for the result."
        )
    return (
        f"{title}A `{form.peft_type}` adapter that ptrun trained: {learned['prompt']:,} parameters "
        f"in the adapter and {learned['head']:,} in its head. The backbone is frozen. Its licence "
        "and that of the data apply; no licence was chosen for the adapter."
    )


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
    is_whole = form.peft_type == stock.WHOLE
    features = method.encode([example])
    if method.readout.writes:
        features = [method.readout.prompt(feature) for feature in features]  # type: ignore[attr-defined]
    batch = collate(features, None, method.backbone.model.device)
    inputs = {name: grid.tolist() for name, grid in stock_inputs(batch, form).items()}
    lines = "".join(f"    {name!r}: torch.tensor({value}),\n" for name, value in inputs.items())
    row = batch.features[0].rows[0]
    reads = [column + form.shift for column in row.reads]
    index = "" if form.reader.task_type == "SEQ_CLS" else f"[:, {reads}]"
    loaded = (
        f"from transformers import {form.reader.auto}\n\n"
        f'model = {form.reader.auto}.from_pretrained(".").eval()  # the folder of this file\n'
        if is_whole
        else "from peft import PeftModel\n"
        f"from transformers import {form.reader.auto}\n\n"
        f"base = {form.reader.auto}.from_pretrained({base!r}{labels})\n"
        'model = PeftModel.from_pretrained(base, ".").eval()  # the folder of this file\n'
    )
    asked = (
        _written(method)
        if method.readout.writes
        else (f"with torch.no_grad():\n    logits = model(**inputs).logits\nprint(logits{index})\n")
    )
    text = " ".join(method.backbone.tokenizer().decode(row.ids).replace("`", "'").split())
    return f"import torch\n{loaded}inputs = {{  # {text}\n{lines}}}\n{asked}"


def _written(method: Method) -> str:
    """Return code that writes a text, greedily."""
    decoding: Any = method.readout.decoding  # type: ignore[attr-defined]
    options = f"max_new_tokens={decoding.max_new_tokens}, eos_token_id={list(decoding.ends)}"
    return (
        "from transformers import AutoTokenizer\n\n"
        f"written = model.generate(**inputs, {options}, do_sample=False)\n"
        'tokenizer = AutoTokenizer.from_pretrained(".")\n'
        "print(tokenizer.decode(written[0], skip_special_tokens=True))\n"
    )


def _reading(form: PeftForm, method: Method) -> str:
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
        for part, scores in done.metrics.items()
        for name, value in scores.items()
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


_LOADERS: Mapping[Kind, str] = {
    "peft": "Stock PEFT and transformers loaded this folder.",
    "transformers": "Stock transformers loaded this folder.",
    "vllm": "Stock transformers read the embeddings that this folder's client sends.",
}


def _parity(kind: Kind, gap: Parity) -> str:
    return (
        "## Parity\n\n"
        f"{_LOADERS[kind]} On {gap.examples} dev examples of the "
        f"run, {gap.logits:,} logits in fp32 differ from the run's by at most "
        f"{gap.difference:.1e}. The largest logit is {gap.largest:.2f}."
    )


def _made(run: Finished, kind: Kind) -> str:
    done = run.done
    versions = dict(done.manifest.get("versions", {}))
    if kind == "peft":
        versions["peft"] = version("peft")
    listed = ", ".join(f"{_plain(n)} {_plain(v)}" for n, v in versions.items())
    return (
        f"## How it was made\n\n```bash\n{command(request.read(run.folder))}\n```\n\n"
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
