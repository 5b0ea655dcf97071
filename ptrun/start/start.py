"""`start=`: checked against the method, the task and other runs, and carried out."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.folder.store import bound_to
from ptrun.method.base import Method
from ptrun.pattern.spelling import Spelling, frame, mask_ids
from ptrun.readout.base import Features
from ptrun.start import saved_prompt
from ptrun.start.pretraining import task_for
from ptrun.start.saved_prompt import follow, prompts, tuned_by
from ptrun.start.spec import CONTEXTS, CONTINUE, NUMBERS, OTHERS, WORDS, Start, parse
from ptrun.task.dataset import MESSAGES, Task
from ptrun.task.setting import shots
from ptrun.types import Example

_LOG = logging.getLogger(__name__)


# Check `start=` against the method, the task and other runs.


def plan_start(
    composed: Composed, method: type[Method], task: Task, backbone: PretrainedBackbone
) -> Start:
    """Return the start of a run; read the prompt file of another run, but no examples."""
    config = composed.config
    start, bound = parse(config["start"]), bound_to(backbone)
    if start.kind == "run":
        folder = saved_prompt.find(start.value, composed.outputs, composed.name)
        tuned = tuned_by(folder, bound)
        digest = tuned.digest if tuned else saved_prompt.fingerprint(folder, bound)
        return Start("run", start.value, folder=folder, digest=digest, tuned=tuned)
    if start.kind == "peft":
        from ptrun.start import peft

        adapter = peft.read(Path(start.value).expanduser())
        peft.check(adapter, method, config["method"], backbone)
        return Start("peft", start.value, folder=adapter.folder, digest=adapter.digest)
    if start.kind == "pretrained":
        return Start("pretrained", task_for(task, config["readout"], start.value))
    if start.kind in ("joined", *CONTEXTS):
        return _prefixed(start, composed, method, task, backbone)
    node = config["method"]
    if start.kind != "random" and not method.learns_vectors(node):
        fits = not method.unfit_for_context(node, backbone)  # a table of keys and values
        if start.kind in NUMBERS and fits:
            return start
        if start.kind == "text" and fits:
            raise UserError(
                f"start={config['start']}: {method.__name__} learns keys and values, no input "
                f"vectors. Type start=context:{start.value}"
            )
        raise UserError(
            f"start={config['start']}: {method.__name__} as configured learns no input vectors. "
            "Use start=random, start=run:... or start=pretrained:TASK,\nor method=prompt_tuning "
            "(or method=ptuning method.encoder=plain)."
        )
    if start.kind == "labels" and not task.labels and task.answer != "option":
        raise UserError(f"start=labels: task={task.name} has no labels. Use start=vocabulary.")
    return start


def _prefixed(
    start: Start, composed: Composed, method: type[Method], task: Task, backbone: PretrainedBackbone
) -> Start:
    """Return a start from keys and values of a text or from prefixes, with what it starts from."""
    where, config = f"start={start.kind}", composed.config
    reason = method.unfit_for_context(config["method"], backbone)
    takes = hasattr(method, "join" if start.kind == "joined" else "begin")
    if reason and not (takes and method.learns_vectors(config["method"])):
        raise UserError(f"{where}: {method.__name__} {reason}")
    from ptrun.readout.document import digest_of, read_document

    if start.kind == "joined":
        names, bound = start.value.split("+"), bound_to(backbone)
        folders = [saved_prompt.find(run, composed.outputs, composed.name) for run in names]
        digest = digest_of(" ".join(saved_prompt.fingerprint(folder, bound) for folder in folders))
        return replace(start, folders=tuple(folders), digest=digest)
    if start.kind == "demonstrations":
        if task.answer not in ("label", "text") or MESSAGES in task.fields:
            raise UserError(f"{where}: task={task.name} has no labels and no texts as answers.")
        return start
    text = read_document(start.value or config["readout"].get("document") or "", where)
    return replace(start, value=text, digest=digest_of(text))


# Token ids to start a prompt from: label words, vocabulary, words of the task, or a text.

_TOP = 1000
_RUN = 16  # tokens
_SENTINELS = 16  # more than the masks of any pattern


@dataclass(frozen=True)
class WordSource:
    """The sources of words; `rows` returns the encoded train and dev examples."""

    start: Start
    method: Method
    rows: Callable[[], Iterable[Features]]
    draw: torch.Generator
    train: Sequence[Example] = ()

    def shuffled(self, ids: Sequence[int]) -> list[int]:
        """Return ids in random order."""
        order = torch.randperm(len(ids), generator=self.draw).tolist()
        return [ids[place] for place in order]


def _ids(source: WordSource, length: int) -> list[int]:
    method, kind = source.method, source.start.kind
    tokenizer = method.backbone.tokenizer()
    spelling = Spelling(tokenizer)
    if kind == "text":
        return spelling.ids(source.start.value, spaced=False, opens=True)
    if kind == "labels" and (words := method.readout.words()) is not None:
        return words
    if kind == "labels":  # a head has no words: the labels' names
        names = (str(label).replace("_", " ") for label in method.task.labels)
        return [i for name in names for i in spelling.answer(name)]
    if kind == "task_words":  # the most frequent tokens, but for special ones; ties by id
        special = {*tokenizer.all_special_ids, *mask_ids(tokenizer, _SENTINELS)[0]}
        counts = Counter(i for f in source.rows() for row in f.rows for i in row.ids)
        ranked = sorted(counts.keys() - special, key=lambda i: (-counts[i], i))
        return source.shuffled(ranked[:length])
    rows = method.backbone.model.get_input_embeddings().weight.shape[0]
    size = min(len(tokenizer), int(rows))  # ids that have both a token and an embedding
    return source.shuffled(range(min(_TOP, size) if kind == "top_1000" else size))[:length]


# Initialize the prompts of a run as `start=` says.

Rows = Callable[[Method, str], Iterable[Features]]
"""Returns the encoded train and dev examples of a method's part."""


def begin(
    start: Start,
    methods: Mapping[str, Method],
    bound: Mapping[str, str],
    seed: int,
    rows: Rows,
    train: Mapping[str, Sequence[Example]],
) -> None:
    """Initialize the prompts of placed methods, by part, and heads copied from the backbone."""
    heads = [method.readout.begin() for method in methods.values()]
    if start.tuned is not None:
        new = "the rest is new" if any(heads) else "prompt and head are new"
        _LOG.info("start=run:%s: its backbone is used; %s", start.value, new)
    elif start.kind == "peft":
        from ptrun.start import peft

        assert start.folder is not None
        adapter = peft.read(start.folder)
        for method in methods.values():
            peft.begin(adapter, method)
    elif start.kind in OTHERS:
        assert start.folder is not None
        follow(start.folder, methods, bound)
    elif start.kind == "joined":
        for part, method in methods.items():
            joining: Any = method
            joining.join([(f, prompts(f, bound).get(part, {})) for f in start.folders])
    elif start.kind not in ("random", CONTINUE):
        for part, method in methods.items():
            generator, encoded = torch.Generator().manual_seed(seed), partial(rows, method, part)
            source = WordSource(start, method, encoded, generator, train.get(part, ()))
            if start.kind in CONTEXTS:
                begin_context(source)
            else:
                prompt: Any = method.prompt
                length = getattr(prompt, "form", prompt.table.shape)[0]  # with frozen vectors
                prompt.begin(vectors(source, length, prompt.table.shape[1]).to(prompt.table))


def begin_context(source: WordSource) -> None:
    """Start prefixes from the keys and values of a text's tokens, or CPT from its embeddings."""
    from ptrun.method.cpt import CPT  # other runs do not need it

    method: Any = source.method
    start = source.start
    length, examples = method.length, list[Example]()
    if start.kind == "demonstrations":
        ids, examples = _demonstrations(source)
    else:
        ids = method.backbone.tokenizer()(start.value).input_ids
    if isinstance(method, CPT):
        kinds = [kind for example in examples for kind in method.kinds(example)]
        method.begin(ids, [*["literal"] * (len(ids) - len(kinds)), *kinds])
        return
    if len(ids) < length:
        raise UserError(
            f"start={start.kind}: the text has {len(ids)} tokens, and method.length={length} "
            f"needs as many. Give a longer text, or type method.length={len(ids)}."
        )
    method.begin(spread(ids, length) if start.kind == "spread" else ids[:length])
    _LOG.info("start=%s: %d of %d tokens", start.kind, length, len(ids))


def spread(ids: Sequence[int], length: int) -> list[int]:
    """Return `length` tokens in runs of 16, or in 4 shorter ones, from evenly spaced places."""
    run = min(_RUN, -(-length // 4))
    runs = -(-length // max(1, run))
    starts = [round(i * (len(ids) - length) / max(1, runs - 1)) + i * run for i in range(runs)]
    return [id_ for start in starts for id_ in ids[start : start + run]][:length]


def _demonstrations(source: WordSource) -> tuple[list[int], list[Example]]:
    """Return the tokens of drawn training examples with their answers, in a pattern, and these."""
    from ptrun.readout.cloze import Cloze
    from ptrun.readout.verbalizer import VerbalizerReading

    method, count, seed = source.method, source.start.value, source.draw.initial_seed()
    readout = method.readout
    if not isinstance(readout, Cloze):  # a head
        made: Any = VerbalizerReading().made(method.backbone, method.task, soft=False)
        readout = made
    chosen = shots(source.train, int(count), seed, f"start=demonstrations:{count}")
    opening = frame(method.backbone.tokenizer(), 1).ids[0]
    return [*opening, *chain.from_iterable(map(readout.demonstration, chosen))], chosen


def vectors(source: WordSource, length: int, width: int) -> Tensor:
    """Return the initial vectors `[length, width]` of a start."""
    start, draw = source.start, source.draw
    if start.kind in WORDS:
        table = source.method.backbone.model.get_input_embeddings().weight
        if not (ids := _ids(source, length)):
            raise UserError(f"start={start}: found no words; use start=vocabulary.")
        repeated = torch.tensor([ids[place % len(ids)] for place in range(length)])
        return source.method.backbone.embed(repeated.to(table.device)).detach()
    if start.kind == "zero":
        return torch.zeros(length, width)
    if start.kind == "uniform":
        return (2 * torch.rand(length, width, generator=draw) - 1) * start.size
    rows = 1 if start.kind == "identical" else length
    return (torch.randn(rows, width, generator=draw) * start.size).expand(length, width)
