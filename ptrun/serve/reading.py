"""How the rows of requests are read: by the task of their run, or as they stand with `echo`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ptrun.backbone.choosing import Decoding, dice_of
from ptrun.backbone.grammar import Grammar, spelled
from ptrun.errors import UserError, shown
from ptrun.pattern.spelling import frame
from ptrun.predicting.rows import Question
from ptrun.predicting.together import Loaded
from ptrun.serve.rows import WaitingRow, Wish, text_of
from ptrun.task.conversation import BESIDE
from ptrun.types import Example

_OF_TOKENS = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias",
)  # fmt: skip
_APART = 0x9E3779B97F4A7C15  # between the seeds of choices, far from a client's next seed


class TooLong(UserError):
    """A prompt and a first token do not fit the positions of the model."""


def read(job: WaitingRow, loaded: Loaded, longest: int) -> None:
    """Read a row as the task of its run does, or as it stands with `echo`.

    A text has at most `longest` tokens. A row that follows a grammar is ready when it has it.
    """
    job.loaded = loaded
    if job.wish.echo:
        job.method = job.loaded.scored
        fields = {"ids": _ids(job.loaded, job.row["prompt"]), "top": job.wish.logprobs or 0}
        example = Example(str(job.number), fields, None)
        job.question = Question(job.number, example, job.number, job.row)
        readout: Any = job.loaded.methods[""].readout
        (prompt,) = job.method.encode([job.question.example])
    else:
        shorthand = job.uncut or [*job.row] == ["prompt"]  # else the fields of the task
        row = _fields(job.loaded, job.row) if shorthand else job.row
        (job.question,) = job.loaded.asked([row], job.number)
        job.method = job.loaded.method(job.question.example)
        (whole,) = job.method.encode([job.question.example], whole=True)
        readout, job.features = job.method.readout, whole
        if not (readout.writes and job.uncut):
            (job.features,) = job.method.encode([job.question.example])
            job.shortened = job.features.tokens < whole.tokens
        if not readout.writes:
            job.ready = True
            return
        prompt = readout.prompt(job.features)
    family, (prompt_row,) = job.method.backbone.architecture, prompt.rows
    left = job.method.room() - len(prompt_row.ids)
    if family.has_decoder and not family.has_blank:  # which writes apart from what it reads
        left = job.method.room() if left >= 0 else 0
    if left < (0 if job.wish.max_tokens == 0 else 1):
        room = f"{job.method.room():,} tokens, with one for the answer"
        raise TooLong(f"the prompt has {prompt.tokens:,} tokens; {job.loaded.id} reads {room}.")
    end = job.method.backbone.tokenizer().eos_token_id
    usual = readout.decoding if readout.writes else Decoding(ends=() if end is None else (end,))
    drawn = readout.seed(prompt.id) if readout.writes else 0
    seed = drawn if job.wish.seed is None else job.wish.seed
    job.dice = dice_of(seed + job.choice * _APART)
    job.decoding = decoding_of(usual, job.wish, min(longest, left))
    structure = job.wish.structure
    follows = structure is not None and (structure.required or structure.schema is not None)
    if job.decoding.beams > 1 and job.left and (follows or job.wish.logprobs is not None):
        raise UserError(
            f"{job.loaded.id} searches with {job.decoding.beams} beams, which have no logprobs "
            "and follow no response_format or tools. Send temperature 0 to do without beams."
        )
    job.features = prompt
    job.form = structure.reader(readout.calls) if structure and structure.tools else None
    job.ready = not follows


def decoding_of(usual: Decoding, wish: Wish, left: int) -> Decoding:
    """Return how a text of at most `left` tokens is written: the run's way, with what is wished."""
    most = usual.max_new_tokens if wish.max_tokens is None else wish.max_tokens
    changes: dict[str, Any] = {
        "max_new_tokens": min(most, left),
        "stop": (*usual.stop, *wish.stop),
    }
    if wish.temperature is not None:
        changes["beams"] = 1
    for key in _OF_TOKENS:
        if (value := getattr(wish, key)) is not None:
            changes[key] = value
    return replace(usual, **changes)


def follow(job: WaitingRow) -> None:
    """Read the grammar of a row, which is then ready; what it cannot say names its key."""
    structure, decoding = job.wish.structure, job.decoding
    assert structure is not None and decoding is not None
    try:
        tokenizer = job.method.backbone.tokenizer()
        text = structure.grammar(job.form, partial(spelled, tokenizer, decoding.ends))
        job.grammar = Grammar(tokenizer, decoding.ends, text)
        job.ready = True
    except UserError as error:
        raise UserError(f"{structure.key}: {error}") from error
    except RecursionError as error:
        raise UserError(f"{structure.key}: its schema is nested too deeply.") from error


def _fields(loaded: Loaded, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of the run's task; a prompt or the turns of a chat become its field."""
    task = loaded.run.task
    fields = [field for field in task.reads if field not in task.optional]
    talks = not task.pvps and task.answer == "text"
    if not talks and (others := [turn["role"] for turn in row.get("messages", [])][:-1]):
        raise UserError(
            f"messages: {loaded.id} was not trained on conversations and reads one text, so the "
            f"turns before the last one ({', '.join(others[:5])}) would have no effect. Leave them "
            "out."
        )
    if len(fields) != 1:
        raise UserError(
            f"{loaded.id} reads the fields {', '.join(fields)}, so a prompt is not enough. Use "
            "/v1/predict with these fields."
        )
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        ids, begin = _ids(loaded, prompt), frame(loaded.run.backbone.tokenizer(), 1).ids[0]
        prompt = text_of(loaded, ids[len(begin) :] if ids[: len(begin)] == begin else ids)
    turns = row.get("messages", [{"role": "user", "content": prompt}])
    beside = {key: value for key, value in row.items() if key in BESIDE}
    if talks:
        return {**beside, fields[0]: turns}
    if beside:
        key = next(iter(beside))
        raise UserError(f"{key}: {loaded.id} was not trained on conversations and reads none.")
    content = turns[-1]["content"]
    is_parts = isinstance(content, list)
    return {fields[0]: "".join(part["text"] for part in content) if is_parts else content}


def _ids(loaded: Loaded, prompt: str | Sequence[Any]) -> list[int]:
    """Return the token ids of a prompt as it stands: its own, or those of its text alone."""
    backbone = loaded.run.backbone
    tokenizer = backbone.tokenizer()
    most = min(len(tokenizer), backbone.embedding_rows)
    ids = prompt
    if isinstance(prompt, str):  # a client counts with tokens that it sees in its text
        ids = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"]
    if not ids:
        raise UserError(f"prompt: {shown(prompt)} has no token.")
    for token in ids:
        if type(token) is not int or not 0 <= token < most:
            raise UserError(
                f"prompt: {shown(token)} is no token id of {loaded.id}, which has those from 0 to "
                f"{most - 1}."
            )
    return list(ids)
