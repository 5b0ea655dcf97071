"""What `ptrun serve` answers: texts in OpenAI's form, lines of rows, and errors."""

import json
import time
import uuid
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

from fastapi.responses import JSONResponse

from ptrun.errors import UserError
from ptrun.predicting.answering import Detail, answer_of
from ptrun.serve.batches import RowAnswer, TooLong
from ptrun.serve.prompts import UnknownRun


class Refused(Exception):
    """A request that is refused, with its HTTP status, and the code or key that clients look at."""

    def __init__(self, status: int, message: str, *, code: Any = None, key: Any = None):
        super().__init__(message)
        self.status, self.message, self.code, self.key = status, message, code, key


class Form:
    """The responses of one request in OpenAI's form."""

    def __init__(self, *, chat: bool, model: str, usage: bool = False):
        self.chat, self.model, self.usage, self.made = chat, model, usage, int(time.time())
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex[:24]}"

    def whole(self, answers: Sequence[RowAnswer]) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        choices = []
        for index, a in enumerate(answers):
            text = str(a.prediction.value)
            turn = {"role": "assistant", "content": text, "refusal": None}
            content = {"message": turn} if self.chat else {"text": text}
            ended = "stop" if a.ended else "length"
            scores = None if self.chat else text_scores(a)
            choices.append({"index": index, **content, "finish_reason": ended, "logprobs": scores})
        kind = "chat.completion" if self.chat else "text_completion"
        return {
            **self._head(kind, answers[0].loaded.id),
            "choices": choices,
            "usage": usage_of(answers),
        }

    def event(self, text: str, ended: str | None, *, begins: bool = False) -> str:
        """Return a piece of a stream."""
        piece: dict[str, Any] = {"text": text}
        if self.chat:
            delta = {"role": "assistant", "content": ""} if begins else {}
            piece = {"delta": {**delta, **({"content": text} if text else {})}}
        return self.piece([{"index": 0, **piece, "finish_reason": ended, "logprobs": None}])

    def piece(self, choices: Sequence[Any], **usage: Any) -> str:
        """Return a piece of a stream with choices, or with the counts of tokens."""
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        content = {**self._head(kind, self.model), "choices": choices, **usage}
        return f"data: {json.dumps(content)}\n\n"

    def _head(self, kind: str, model: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.made, "model": model}


def text_scores(answer: RowAnswer) -> dict[str, Any] | None:
    """Return the scores of a completion's tokens, after those of an echoed prompt.

    Of tokens with one text, `top_logprobs` has the likeliest.
    """
    if answer.scores is None and answer.prompt_scores is None:
        return None
    text_of = partial(token_text, answer.loaded.run.backbone.tokenizer())
    scores = [*(answer.prompt_scores or ()), *(answer.scores or ())]
    tokens = [
        score.token if score else answer.question.example.fields["ids"][0] for score in scores
    ]
    texts = [text_of(token) for token in tokens]
    tops: list[dict[str, float] | None] = []
    for score in scores:
        likeliest = (*score.top, (score.token, score.logprob)) if score else ()
        tops.append({text_of(t): p for t, p in reversed(likeliest)} if score else None)
    return {
        "tokens": texts,
        "token_logprobs": [score and score.logprob for score in scores],
        "top_logprobs": tops,
        "text_offset": [0, *accumulate(map(len, texts))][:-1],
    }


@lru_cache(maxsize=2**17)
def token_text(tokenizer: Any, token: int) -> str:
    """Return the text of a token that follows another one.

    It leaves alone what the tokenizer changes when it encodes in another thread.
    """
    names = tokenizer.convert_ids_to_tokens([token]) * 2
    alone, twice = (tokenizer.convert_tokens_to_string(names[:count]) for count in (1, 2))
    return str(twice[len(alone) :])


def line_of(answer: RowAnswer, *, probabilities: bool = False) -> dict[str, Any]:
    """Return a line of `ptrun predict`, and whether the row was cut."""
    run, detail = answer.loaded.run, Detail(probabilities=probabilities)
    line = answer_of(run, answer.question, answer.prediction, detail)
    return {**line, "shortened": True} if answer.shortened else line


def check_text(answer: RowAnswer) -> None:
    """Refuse the answer of a run that writes no texts."""
    if answer.loaded.run.task.answer != "text":
        raise Refused(400, f"{answer.loaded.id} writes no texts; use /v1/classify.")


def usage_of(answers: Sequence[RowAnswer]) -> dict[str, int]:
    """Return the counts of tokens."""
    prompt, text = sum(a.prompt_tokens for a in answers), sum(a.tokens for a in answers)
    return {"prompt_tokens": prompt, "completion_tokens": text, "total_tokens": prompt + text}


def refusal(error: Exception) -> Refused:
    """Return what a client is told of an error; only a run's or a row's own fault is in words."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, UnknownRun):
        return Refused(404, str(error), code="model_not_found", key="model")
    if isinstance(error, TooLong):
        return Refused(400, str(error), code="context_length_exceeded")
    if isinstance(error, UserError):
        return Refused(400, str(error))
    return Refused(500, f"the row failed ({type(error).__name__}).")


def error_response(error: Refused) -> JSONResponse:
    """Return an error in OpenAI's form."""
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(
        error.status, "invalid_request_error" if error.status < 500 else "server_error"
    )
    headers = {"WWW-Authenticate": 'Basic realm="ptrun"'} if error.status == 401 else None
    facts = {"message": error.message, "type": kind, "param": error.key, "code": error.code}
    return JSONResponse({"error": facts}, error.status, headers)
