"""What `ptrun serve` answers: texts in OpenAI's form, lines of rows, and errors."""

import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

from fastapi.responses import JSONResponse
from transformers.convert_slow_tokenizer import bytes_to_unicode

from ptrun.errors import UserError
from ptrun.predicting.answering import Detail, answer_of
from ptrun.serve.batches import QueueFull
from ptrun.serve.prompts import UnknownRun
from ptrun.serve.reading import TooLong
from ptrun.serve.requests import ChatRequest, CompletionRequest
from ptrun.serve.rows import WaitingRow

_KEYS = {*CompletionRequest.model_fields, *ChatRequest.model_fields}


class Refused(Exception):
    """A request that is refused, with its HTTP status, and the code or key that clients look at."""

    def __init__(self, status: int, message: str, *, code: Any = None, key: Any = None):
        super().__init__(message)
        self.status, self.message, self.code, self.key = status, message, code, key


class Form:
    """The responses of one request in OpenAI's form."""

    def __init__(self, asked: ChatRequest | CompletionRequest):
        self.chat, self.model, self.n = isinstance(asked, ChatRequest), asked.model, asked.n
        self.counts, self.created = asked.stream_options.include_usage, int(time.time())
        self.scored = asked.wish.logprobs is not None
        self.id = f"{'chatcmpl' if self.chat else 'cmpl'}-{uuid.uuid4().hex[:24]}"

    def whole(self, answers: Sequence[WaitingRow]) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        choices = []
        for index, a in enumerate(answers):
            text, calls = self.said(a)
            said = {"content": text or None, "tool_calls": calls} if calls else {"content": text}
            turn = {"role": "assistant", **said, "refusal": None}
            content = {"message": turn} if self.chat else {"text": text}
            choices.append(
                {"index": index, **content, **_end(a, calls), "logprobs": self.scores(a)}
            )
        kind = "chat.completion" if self.chat else "text_completion"
        head = self._head(kind, answers[0].loaded.id)
        return {**head, "choices": choices, "usage": self.usage(answers)}

    def said(self, answer: WaitingRow) -> tuple[str, list[dict[str, Any]]]:
        """Return the text of an answer, and its calls."""
        text = str(answer.prediction.value)
        return answer.form.read(text) if answer.form else (text, [])

    def sure(self, job: WaitingRow, text: str) -> str:
        """Return a text that is being written, up to what may be the beginning of a call."""
        sure = job.form.sure(text) if job.form else text
        return sure.rstrip("\ufffd")  # of the last letter not all bytes may be there

    def event(
        self, index: int, text: str, scores: Any = None, answer: WaitingRow | None = None,
        calls: Sequence[Mapping[str, Any]] = (), *, begins: bool = False,
    ) -> str:  # fmt: skip
        """Return a piece of a choice in a stream; the last one has the answer and its calls."""
        piece: dict[str, Any] = {"text": text}
        if self.chat:
            delta = {"role": "assistant", "content": ""} if begins else {}
            numbered = [{"index": number, **call} for number, call in enumerate(calls)]
            said = {"content": text, "tool_calls": numbered}
            piece = {"delta": {**delta, **{key: value for key, value in said.items() if value}}}
        return self.piece([{"index": index, **piece, **_end(answer, calls), "logprobs": scores}])

    def piece(self, choices: Sequence[Any], answers: Sequence[WaitingRow] = ()) -> str:
        """Return a piece of a stream with choices, or with the counts of tokens."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        usage = {"usage": self.usage(answers) if answers else None} if self.counts else {}
        return event_of({**self._head(kind, self.model), "choices": choices, **usage})

    def usage(self, answers: Sequence[WaitingRow]) -> dict[str, int]:
        """Return the counts of tokens; a prompt with several choices is counted once."""
        prompt = sum(answer.features.tokens for answer in answers[:: self.n])
        text = sum(len(answer.tokens) for answer in answers)
        return {"prompt_tokens": prompt, "completion_tokens": text, "total_tokens": prompt + text}

    def scores(
        self, row: WaitingRow, start: int = 0, end: int | None = None
    ) -> dict[str, Any] | None:
        """Return the log-probabilities of tokens, if they were asked for."""
        if not self.scored:
            return None
        tokenizer = row.loaded.run.backbone.tokenizer()
        scores = [*(row.prompt_scores or ()), *row.scores][:end]
        if self.chat:
            content = [
                {**_likely(tokenizer, score.token, score.logprob),
                 "top_logprobs": [_likely(tokenizer, *pair) for pair in score.top]}
                for score in scores[start:] if score
            ]  # fmt: skip
            return {"content": content, "refusal": None}
        text_of = partial(token_text, tokenizer)
        tokens = [s.token if s else row.question.example.fields["ids"][0] for s in scores]
        spelled = [token_bytes(tokenizer, token) for token in tokens]
        text = b"".join(spelled).decode(errors="replace")
        said = str(row.prediction.value) if row.done.done() else ""
        cut = len(text) - len(text.lstrip()) - (len(said) - len(said.lstrip()))
        begun = (sum(byte & 0xC0 != 0x80 for byte in letters) for letters in spelled)
        tops = [
            # of tokens with one text, the likeliest
            s and {text_of(t): p for t, p in reversed((*s.top, (s.token, s.logprob)))}
            for s in scores[start:]
        ]
        return {
            "tokens": [text_of(token) for token in tokens[start:]],
            "token_logprobs": [score and score.logprob for score in scores[start:]],
            "top_logprobs": tops,
            "text_offset": [max(0, at - cut) for at in accumulate(begun, initial=0)][start:-1],
        }

    def _head(self, kind: str, model: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": model}


def event_of(content: Mapping[str, Any]) -> str:
    """Return an event of a stream."""
    return f"data: {json.dumps(content)}\n\n"


@lru_cache(maxsize=2**17)
def token_bytes(tokenizer: Any, token: int) -> bytes:
    """Return the bytes of a token that follows another one; it may be a part of a letter.

    It leaves alone what the tokenizer changes when it encodes in another thread.
    """
    names = tokenizer.convert_ids_to_tokens([token]) * 2
    alone, twice = (tokenizer.convert_tokens_to_string(names[:count]) for count in (1, 2))
    text, name = str(twice[len(alone) :]), names[0]
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}
    if "\ufffd" in text and re.fullmatch("<0x[0-9A-F]{2}>", name):
        return bytes.fromhex(name[3:-1])
    if "\ufffd" in text and all(letter in letters for letter in name):
        return bytes(letters[letter] for letter in name)
    return text.encode()


def token_text(tokenizer: Any, token: int) -> str:
    """Return the text of a token; of a part of a letter its bytes, in OpenAI's form."""
    spelled = token_bytes(tokenizer, token)
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)


def line_of(answer: WaitingRow, *, probabilities: bool = False) -> dict[str, Any]:
    """Return a line of `ptrun predict`, and whether the row was cut."""
    run, detail = answer.loaded.run, Detail(probabilities=probabilities)
    line = answer_of(run, answer.question, answer.prediction, detail)
    return {**line, "shortened": True} if answer.shortened else line


def check_text(answer: WaitingRow) -> None:
    """Refuse the answer of a run that writes no texts."""
    if answer.loaded.run.task.answer != "text":
        raise Refused(400, f"{answer.loaded.id} writes no texts; use /v1/classify.")


def _end(answer: WaitingRow | None, calls: Sequence[Any]) -> dict[str, Any]:
    """Return why a text ends, if it has."""
    usual = "tool_calls" if calls else "stop"
    return {"finish_reason": answer and (usual if answer.ended else "length")}


def _likely(tokenizer: Any, token: int, logprob: float) -> dict[str, Any]:
    text, spelled = token_text(tokenizer, token), token_bytes(tokenizer, token)
    return {"token": text, "logprob": logprob, "bytes": [*spelled]}


def refusal(error: Exception) -> Refused:
    """Return what a client is told of an error; only a run's or a row's own fault is in words."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, UnknownRun):
        return Refused(404, str(error), code="model_not_found", key="model")
    if isinstance(error, QueueFull):
        return Refused(429, str(error))
    if isinstance(error, TimeoutError):
        return Refused(504, "no answer in time.")
    if isinstance(error, TooLong):
        return Refused(400, str(error), code="context_length_exceeded")
    if isinstance(error, UserError):
        key = str(error).partition(":")[0]
        return Refused(400, str(error), key=key if key in _KEYS else None)
    return Refused(500, f"the row failed ({type(error).__name__}).")


def error_of(error: Refused) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    usual = "invalid_request_error" if error.status < 500 else "server_error"
    kind = {401: "authentication_error", 429: "rate_limit_error"}.get(error.status, usual)
    facts = {"message": error.message, "type": kind, "param": error.key, "code": error.code}
    return {"error": facts}


def error_response(error: Refused, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error as an answer of its own."""
    if error.status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return JSONResponse(error_of(error), error.status, headers)
