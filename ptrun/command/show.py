"""Show one run: scores, curves, labels, worst errors, files, and what to type next.

A run that was interrupted, has failed or is at work has its page as far as it goes. The texts of
errors are read from the run's data; KEY=VALUE says where these are now. Nothing is downloaded.
"""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptrun.config.arguments import COMMANDS, Parser, additions
from ptrun.errors import UserError, plain_json

EXAMPLES = """\
  ptrun show outputs/runs/RUN_ID                a folder, an id, or the start of an id
  ptrun show RUN --html run.html                a page for a browser, in one file
  ptrun show RUN task.test=FILE data_dir=DIR    where the data are now
  ptrun show RUN --words                        the words nearest to each learned vector
"""

PARSER = Parser("show", __doc__, EXAMPLES)
PARSER.add_argument("run", metavar="RUN", help="a run folder, a run id or the start of an id")
PARSER.overrides("where data and weights are now; outputs=DIR is also where RUN is looked up")
PARSER.add_argument("--words", action="store_true", help="words near the vectors of its prompt")
PARSER.add_argument("--html", type=Path, metavar="FILE", help="write the page to an HTML file")


def main(arguments: Sequence[str]) -> None:
    """Print the page of a run, or write it."""
    args = PARSER.parse(arguments)
    if args.html and args.html.suffix.lower() not in (".html", ".htm"):  # such as a result.json
        PARSER.error(f"--html {args.html}: name it {args.html.with_suffix('.html')}")
    os.environ["HF_HUB_OFFLINE"] = "1"
    from ptrun.files import write_text
    from ptrun.folder import digest, request, result, scan
    from ptrun.folder.find import RunFolder, find, place_of
    from ptrun.reporting.page import Part, html, parts, show
    from ptrun.types import RunResult

    # 1. The run; one that has not ended is known by its configuration
    outputs = [o.partition("=")[2] for o in args.overrides if o.startswith("outputs=")]
    folder = place_of(args.run, "show", Path(*outputs[-1:] or ["outputs"]), ended=False)
    state, so_far = scan.state_of(folder), scan.progress(folder)
    if result.read(folder) is None and (folder / request.FILE).is_file():
        recorded, metric = request.read(folder), so_far.dev.partition(" ")[0]
        names, seed = recorded.names, recorded.seed
        run = RunFolder(folder, RunResult(folder.name, "", state.kind, names, seed, metric))
    else:
        run = find(str(folder), "show")

    # 2. What it was, what its folder has, and what to type next
    done = run.result
    if args.words:
        page = [_words(str(folder), args.overrides)]
    else:
        data = run.facts("data")
        head = {"run": f"{folder}\n{state}, {so_far}  {so_far.dev}".rstrip()}
        if done.status == "finished":
            head["run"] = result.summary(done, folder.parent)
        commands, fields, why = _afterwards(run, args.overrides)
        with digest.damaged(folder):
            for part in [part for part in ("train", "dev", "test") if part in data]:
                origin = data.get("origin", {}).get(part, "")
                head[part] = f"{data[part]['count']:,} examples  {origin}".rstrip()
            if "instruction" in done.manifest:
                head["instruction"] = str(done.manifest["instruction"])
            head |= {"not read": why} if why else {}
            page = [Part("What it was", head), *parts(run, fields), Part("Commands", commands)]
    if args.html is None:
        show(page)
    else:
        write_text(args.html, html(done.run_id, page))


def _afterwards(
    run: Any, typed: Sequence[str]
) -> tuple[dict[str, str], dict[str, Mapping[str, Any]], str]:
    """Return the commands that apply to a run, and the fields of its test examples.

    If something cannot be read, the last text says why.
    """
    from ptrun.config.writing import value_text
    from ptrun.folder import request
    from ptrun.folder.digest import PROMPT

    done, name = run.result, shlex.quote(str(run.folder))
    commands, fields = dict[str, str](), dict[str, Mapping[str, Any]]()
    try:
        keys = ("hardware", "name", "outputs", "data_dir")
        line = request.command(request.read(run.folder), *keys)
        commands["this run"] = f"    {line}"
        if done.status in ("finished", "failed"):
            commands["again, and compare"] = f"    ptrun rerun {name}"
        if done.status != "finished":
            return commands, fields, ""

        # what needs the task and the method, without weights
        from ptrun.exporting.stock_form import afterwards
        from ptrun.runs.rerun import plan_again

        if (kept := (run.folder / PROMPT).is_file()) and "serve" in additions(COMMANDS):
            commands["serve"] = f"    ptrun serve {name}"
        planned = plan_again(run, ["hardware=cpu", *typed], "show")
        if planned.source and "_target_" in planned.source.origin:
            raise UserError("a class makes its rows")
        examples = planned.protocol.split(planned.task, planned.data_seed).test
        fields = {example.id: example.fields for example in examples}
        method, steps, reads = planned.build_method(), done.manifest["steps"], planned.task.reads
        told = afterwards(method, method.encode(examples[:1]), keeps_weights=kept)
        row = min(fields.values(), key=lambda row: len(str(row)))
        if kept and row.keys() >= {*reads}:
            text = plain_json(json.dumps({key: row[key] for key in reads}, ensure_ascii=False))
            asked = f"printf '%s\\n' {shlex.quote(text)}"
            commands["predict"] = f"    {asked} | ptrun predict {name} --input -"
        elif kept:
            commands["predict"] = f"    ptrun predict {name} --input FILE"
        if "+" in done.manifest["backbone"]["weights"]:  # tuned by another run
            return commands, fields, ""
        if (kind := re.search(r"--to (\w+)", told)) and not run.facts("parts"):
            place = shlex.quote(f"{done.run_id}-{kind[1]}")
            commands["export"] = f"    ptrun export {name} --to {kind[1]} {place}"
        known = method.unfolded({}) is not None  # else an encoder makes the prompt
        goes_on = kept and (known or any(run.folder.glob("*state.safetensors")))
        if goes_on and steps and done.manifest["start"] == "random":
            before = shlex.quote(f"continue={value_text('continue', f'run:{run.folder}')}")
            line = re.sub(r" train\.(epochs|max_steps)=\S+", "", line)
            commands["train longer"] = f"    {line} {before} train.max_steps={2 * steps}"
    except UserError as error:
        return commands, fields, str(error)
    return commands, fields, ""


def _words(name: str, typed: Sequence[str]) -> Any:
    """Return the part of a page with the words nearest to each input vector of a run, if any."""
    import torch

    from ptrun.backbone.weights import stored, stored_name
    from ptrun.predicting.answering import ready
    from ptrun.reporting.formats import Table
    from ptrun.reporting.page import Part

    # 1. The vectors
    run = ready(name, typed, "show")
    ends = ("prompt.table", "prompt.vectors")
    prompts = {name: t.float() for name, t in sorted(run.tensors.items()) if name.endswith(ends)}
    if not prompts:
        raise UserError(
            f"show {name} --words: method={run.done.names['method']} learned no vectors among word "
            "embeddings, as prompt_tuning, residual_prompt, dept, prompt_lora and ptuning do."
        )

    # 2. The words: their table alone, where it is used as the files have it
    backbone, tokenizer = run.backbone, run.backbone.tokenizer()
    folder, embedding = backbone.folder or Path(), backbone.model.get_input_embeddings()
    file = stored_name(folder, backbone.model, embedding.weight)
    tuned = backbone.tuned or any(name.startswith("backbone.") for name in run.tensors)
    if type(embedding) is torch.nn.Embedding and file and not tuned:
        table = stored(folder, backbone.model)[file][:].float()
    else:
        run.load()
        ids = torch.arange(backbone.embedding_rows, device=run.engine.device)
        table = backbone.embed(ids).detach().float().cpu()
    table = table[: len(tokenizer)]  # some models have more rows than tokens

    # 3. The nearest words, and how far words are from each other
    drawn = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))[:128]]
    others = torch.cdist(drawn, table).topk(2, largest=False).values[:, 1]
    rows, nearest = [], []
    for name, vectors in prompts.items():
        places = torch.cdist(vectors, table).topk(3, largest=False).indices
        distances = (table[places] - vectors[:, None]).norm(dim=-1)
        cosines = torch.cosine_similarity(table[places], vectors[:, None], dim=-1)
        nearest.append(distances[:, 0])
        for place, number in enumerate(places.flatten().tolist()):
            token = tokenizer.convert_ids_to_tokens(number)
            word = tokenizer.convert_tokens_to_string([token])
            row = {"vector": f"{name.rpartition('/')[0]} {place // 3 + 1}".strip()}
            row |= {"word": repr(f" {word.lstrip()}" if token.startswith("▁") else word)}
            row |= {"distance": f"{distances.flatten()[place]:.3g}"}
            rows.append(row | {"cosine": f"{cosines.flatten()[place]:.2f}"})
    texts = {
        "vectors": f"the nearest of {len(table):,} words is {torch.cat(nearest).median():.3g} away",
        "words": f"the nearest other word is {others.median():.3g} away",
    }
    columns = ("vector", "word")
    return Part("Words near the vectors (medians)", texts, Table(rows, columns, columns))
