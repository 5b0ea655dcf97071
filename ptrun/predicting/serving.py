"""The routes of `ptrun serve`: OpenAI's, labels, rows, health and metrics.

Every request but `/health` passes three checks: its Host is one of the server's names, its body is
small enough, and, with `--key-file`, it has one of the keys.
"""

import asyncio
import base64
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ptrun import __version__
from ptrun.errors import UserError, shown
from ptrun.files import from_json
from ptrun.predicting.answering import Detail, answer_of
from ptrun.predicting.batches import Batches, QueueFull, RowAnswer, WaitingRow, Wish
from ptrun.predicting.prompts import Prompts, UnknownRun

_PAGE = Path(__file__).with_name("page.html")
_SAFE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_LONGEST_STOP = 200  # characters
_MOST_STOPS = 8


@dataclass(frozen=True)
class Limits:
    """What a client may ask for.

    Args:
        body: bytes of a request.
        rows: of a request.
        seconds: that a request may take.
    """

    body: int = 1_000_000
    rows: int = 256
    seconds: float = 120.0


class Refused(Exception):
    """A request that is refused, with its HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status, self.message = status, message


def made(
    prompts: Prompts,
    batches: Batches,
    *,
    hosts: Sequence[str],
    keys: Sequence[str] = (),
    limits: Limits = Limits(),
) -> FastAPI:
    """Return the application.

    Args:
        prompts: the runs.
        batches: computes the answers.
        hosts: the names by which the server may be called, without port.
        keys: bearer keys; without one, no key is asked for.
        limits: of a request.
    """
    app = FastAPI(
        title="ptrun", version=__version__, docs_url=None, redoc_url=None, openapi_url=None
    )
    asking = _Asking(prompts, batches, limits)
    counted = _Counted(prompts, batches)

    app.add_middleware(_Checked, hosts=hosts, keys=keys, count=counted.requests)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        return _error(error.status, error.message)

    @app.exception_handler(HTTPException)  # no such address, or method
    async def unknown(request: Request, error: HTTPException) -> Response:
        return _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(counted.text(), media_type="text/plain; version=0.0.4")

    @app.get("/")
    async def page() -> Response:
        return HTMLResponse(_PAGE.read_text(encoding="utf-8"))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        every = [{"id": own, "object": "model", "owned_by": "ptrun"} for own in prompts.ids()]
        return {"object": "list", "data": every}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        if name not in prompts.ids():
            raise Refused(404, f"model={name!r}: no such run.")
        return {"id": name, "object": "model", "owned_by": "ptrun"}

    @app.post("/v1/classify")
    async def classify(request: Request) -> dict[str, Any]:
        return await asking.classify(request)

    @app.post("/v1/predict")
    async def predict(request: Request) -> dict[str, Any]:
        return await asking.predict(request)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await asking.write(request, chat=False)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await asking.write(request, chat=True)

    return app


_PATHS = {"/", "/health", "/metrics", "/v1/models", "/v1/classify", "/v1/predict"}
_PATHS |= {"/v1/completions", "/v1/chat/completions"}


class _Checked:
    """Checks each request before its route, adds headers to the answer, and counts it."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], keys: Sequence[str], count: Counter):
        self.app, self.hosts, self.keys, self.count = app, hosts, keys, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_SAFE)
                self.count.labels(path if path in _PATHS else "other", message["status"]).inc()
            await send(message)

        request = Request(scope)
        try:
            _check_host(request, self.hosts)
            if path != "/health":
                _check_key(request, self.keys)
        except Refused as error:
            await _error(error.status, error.message)(scope, receive, sent)
            return
        await self.app(scope, receive, sent)


def _check_host(request: Request, hosts: Sequence[str]) -> None:
    """Refuse another Host: a page of somebody else may have renamed itself to this machine."""
    given = request.headers.get("host", "")
    name = given.rpartition("]")[0] + "]" if given.startswith("[") else given.partition(":")[0]
    if name.lower() not in hosts:
        raise Refused(421, f"Host {given[:80]!r} is not this server's; start it with --host NAME.")


def _check_key(request: Request, keys: Sequence[str]) -> None:
    """Refuse a request without a key: `Bearer KEY`, or the password of a browser."""
    if not keys:
        return
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    given = value.strip()
    if kind.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            given = ""
    fits = [hmac.compare_digest(given.encode(), own.encode()) for own in keys]
    if not any(fits):
        raise Refused(401, "a key is needed: Authorization: Bearer KEY.")


class _Asking:
    """Turns requests into jobs, and answers into responses."""

    def __init__(self, prompts: Prompts, batches: Batches, limits: Limits):
        self.prompts, self.batches, self.limits = prompts, batches, limits

    async def classify(self, request: Request) -> dict[str, Any]:
        """Return labels with the probabilities of all."""
        answers = await self._of_rows(request)
        if any(a.prediction.probabilities is None for a in answers):
            raise Refused(400, f"{answers[0].own.id} has no probabilities; use /v1/predict.")
        detail = Detail(probabilities=True)
        data = [answer_of(a.own.run, a.question, a.prediction, detail) for a in answers]
        return {
            "object": "list",
            "model": answers[0].own.id,
            "data": [
                {
                    "index": index,
                    "label": own["prediction"],
                    "probabilities": own["probabilities"],
                }
                for index, own in enumerate(data)
            ],
        }

    async def predict(self, request: Request) -> dict[str, Any]:
        """Return the lines of `ptrun predict`."""
        answers = await self._of_rows(request)
        data = [answer_of(a.own.run, a.question, a.prediction, Detail()) for a in answers]
        return {"object": "list", "model": answers[0].own.id, "data": data}

    async def write(self, request: Request, *, chat: bool) -> Response:
        """Return a text as OpenAI's API does, or stream it."""
        body = await self._body(request)
        name, wish = _text_of(body, "model"), _wish(body)
        rows = [{"messages": _turns(body)}] if chat else [{"prompt": p} for p in _prompts(body)]
        if len(rows) > self.limits.rows:
            raise Refused(400, f"{len(rows)} prompts; at most {self.limits.rows}.")
        form = _Form(chat=chat, model=name)
        if body.get("stream"):
            if len(rows) > 1:
                raise Refused(400, "stream takes one prompt.")
            return await self._streamed(request, WaitingRow(name, rows[0], wish), form)
        answers = await self._answers(request, [WaitingRow(name, row, wish) for row in rows])
        for answer in answers:
            if answer.own.run.task.answer != "text":
                raise Refused(400, f"{answer.own.id} writes no texts; use /v1/classify.")
        return JSONResponse(form.whole(answers))

    async def _of_rows(self, request: Request) -> list[RowAnswer]:
        body = await self._body(request)
        name, given = _text_of(body, "model"), body.get("input")
        rows = given if isinstance(given, list) else [given]
        if not rows or len(rows) > self.limits.rows:
            raise Refused(400, f"input has {len(rows)} rows; expected 1 to {self.limits.rows}.")
        jobs = [WaitingRow(name, _row(row)) for row in rows]
        return await self._answers(request, jobs)

    async def _body(self, request: Request) -> Mapping[str, Any]:
        """Return the JSON object of a request, of at most `Limits.body` bytes."""
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.limits.body:
                raise Refused(413, f"the body has more than {self.limits.body:,} bytes.")
            parts.append(part)
        try:
            found = from_json(b"".join(parts))
        except (ValueError, RecursionError) as error:
            raise Refused(400, "the body is no JSON.") from error
        if not isinstance(found, dict):
            raise Refused(400, "the body is no JSON object.")
        return found

    def _add(self, jobs: Sequence[WaitingRow]) -> None:
        try:
            self.batches.add(jobs)
        except QueueFull as error:
            raise Refused(429, str(error)) from error

    async def _answers(self, request: Request, jobs: Sequence[WaitingRow]) -> list[RowAnswer]:
        """Wait for answers; a client that leaves, or waits too long, gets none."""
        self._add(jobs)
        until = time.monotonic() + self.limits.seconds
        waits = [asyncio.wrap_future(job.done) for job in jobs]
        try:
            while True:
                _, left = await asyncio.wait(waits, timeout=0.5)
                if not left:
                    return [await own for own in waits]
                if await request.is_disconnected():
                    raise Refused(499, "the client left.")
                if time.monotonic() > until:
                    raise Refused(504, f"no answer within {self.limits.seconds:g} s.")
        except UnknownRun as error:
            raise Refused(404, str(error)) from error
        except UserError as error:
            raise Refused(400, str(error)) from error
        except Refused:
            raise
        except Exception as error:
            raise Refused(500, f"the batch failed ({type(error).__name__}).") from error
        finally:
            for job in jobs:
                job.done.cancel()

    async def _streamed(self, request: Request, job: WaitingRow, form: "_Form") -> Response:
        """Return a stream of the text; its first event says whether the job was accepted."""
        loop, texts = asyncio.get_running_loop(), asyncio.Queue[str | None]()

        def told(text: str) -> None:
            loop.call_soon_threadsafe(texts.put_nowait, text)

        job.told = told
        job.done.add_done_callback(lambda _: loop.call_soon_threadsafe(texts.put_nowait, None))
        self._add([job])
        first = await texts.get()
        if first is None:  # it has failed, or is a label
            (answer,) = await self._answers_of(job)
            if answer.own.run.task.answer != "text":
                raise Refused(400, f"{answer.own.id} writes no texts; use /v1/classify.")
        return StreamingResponse(
            self._events(job, form, texts, first), media_type="text/event-stream"
        )

    async def _answers_of(self, job: WaitingRow) -> list[RowAnswer]:
        try:
            return [job.done.result(timeout=0)]
        except UnknownRun as error:
            raise Refused(404, str(error)) from error
        except UserError as error:
            raise Refused(400, str(error)) from error
        except Exception as error:
            raise Refused(500, f"the batch failed ({type(error).__name__}).") from error

    async def _events(
        self, job: WaitingRow, form: "_Form", texts: "asyncio.Queue[str | None]", text: str | None
    ) -> AsyncIterator[str]:
        """Yield the pieces of a text; a client that leaves cancels the job."""
        sent = ""
        try:
            yield form.event("", None, first=True)
            until = time.monotonic() + self.limits.seconds
            while text is not None and time.monotonic() < until:
                whole = text.removesuffix("\ufffd")  # a letter whose bytes are not all there
                if whole.startswith(sent) and whole != sent:
                    yield form.event(whole[len(sent) :], None)
                    sent = whole
                text = await texts.get()
            answer = job.done.result(timeout=0)
            rest = str(answer.prediction.value)
            if rest.startswith(sent) and rest != sent:
                yield form.event(rest[len(sent) :], None)
            yield form.event("", "stop" if answer.ended else "length")
            yield "data: [DONE]\n\n"
        except Exception as error:  # the status is sent: the stream says what is wrong
            text_ = f"the batch failed ({type(error).__name__})."
            yield f"data: {json.dumps({'error': {'message': text_}})}\n\n"
        finally:
            job.done.cancel()


class _Form:
    """The responses of one request in OpenAI's form."""

    def __init__(self, *, chat: bool, model: str):
        self.chat, self.model, self.made = chat, model, int(time.time())
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex[:24]}"

    def whole(self, answers: Sequence[RowAnswer]) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        prompt, own = sum(a.prompt_tokens for a in answers), sum(a.tokens for a in answers)
        usage = {"prompt_tokens": prompt, "completion_tokens": own, "total_tokens": prompt + own}
        choices = [
            {
                "index": index,
                **self._text(str(a.prediction.value)),
                "finish_reason": "stop" if a.ended else "length",
                "logprobs": None,
            }
            for index, a in enumerate(answers)
        ]
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind, answers[0].own.id), "choices": choices, "usage": usage}

    def event(self, text: str, ended: str | None, *, first: bool = False) -> str:
        """Return a piece of a stream."""
        piece: dict[str, Any] = {"text": text}
        if self.chat:
            delta = {"role": "assistant", "content": ""} if first else {}
            piece = {"delta": {**delta, **({"content": text} if text else {})}}
        choice = {"index": 0, **piece, "finish_reason": ended, "logprobs": None}
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return f"data: {json.dumps({**self._head(kind, self.model), 'choices': [choice]})}\n\n"

    def _text(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}

    def _head(self, kind: str, model: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.made, "model": model}


def _text_of(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise Refused(400, f"{key} is {shown(value)}; expected a text.")
    return value


def _row(given: Any) -> Mapping[str, Any]:
    """Return a text or fields as a row."""
    if isinstance(given, str):
        return {"prompt": given}
    if not isinstance(given, dict):
        raise Refused(400, f"input has {shown(given)}; expected a text or its fields.")
    return given


def _prompts(body: Mapping[str, Any]) -> list[str]:
    given = body.get("prompt")
    every = given if isinstance(given, list) else [given]
    found = [one for one in every if isinstance(one, str) and one]
    if not found or len(found) < len(every):
        raise Refused(400, f"prompt is {shown(given)}; expected a text, or a list of texts.")
    return found


def _turns(body: Mapping[str, Any]) -> list[dict[str, str]]:
    given = body.get("messages")
    turns = given if isinstance(given, list) else []
    found = []
    for turn in turns:
        if not isinstance(turn, dict) or not isinstance(turn.get("role"), str):
            raise Refused(400, f"messages has {shown(turn)}; expected role and content.")
        content = turn.get("content")
        if isinstance(content, list):  # parts, of which texts are read
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            parts = [one for one in texts if isinstance(one, str)]
            content = "".join(parts) if parts and len(parts) == len(content) else None
        if not isinstance(content, str):
            raise Refused(400, f"messages has the content {shown(content)}; expected a text.")
        found.append({"role": turn["role"], "content": content})
    if not found or found[-1]["role"] == "assistant":
        raise Refused(400, "messages is empty, or ends with a turn of the assistant.")
    return found


def _wish(body: Mapping[str, Any]) -> Wish:
    """Return how a text is to be written.

    Raises:
        Refused: a value is out of range, or asks for what is not offered.
    """
    for key, plain in (("n", 1), ("best_of", 1), ("logprobs", False), ("echo", False)):
        if body.get(key) not in (None, plain, 0):
            raise Refused(400, f"{key} is {shown(body[key])}; this server offers {plain} alone.")
    stop = body.get("stop") or []
    stops = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list) else None
    if (
        stops is None
        or len(stops) > _MOST_STOPS
        or not all(isinstance(one, str) and 0 < len(one) <= _LONGEST_STOP for one in stops)
    ):
        raise Refused(400, f"stop is {shown(stop)}; expected up to {_MOST_STOPS} short texts.")
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    return Wish(
        max_tokens=_number(most, "max_tokens", 1, 1_000_000, whole=True),
        temperature=_number(body.get("temperature"), "temperature", 0, 100),
        top_p=_number(body.get("top_p"), "top_p", 1e-6, 1),
        stop=stops,
        seed=_number(body.get("seed"), "seed", -(2**63), 2**63, whole=True),
    )


def _number(value: Any, key: str, low: float, high: float, *, whole: bool = False) -> Any:
    if value is None:
        return None
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        raise Refused(400, f"{key} is {shown(value)}; expected a number from {low:g} to {high:g}.")
    return value


def _error(status: int, message: str) -> JSONResponse:
    kinds = {401: "authentication_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "invalid_request_error" if status < 500 else "server_error")
    headers = {"WWW-Authenticate": 'Basic realm="ptrun"'} if status == 401 else None
    content = {"error": {"message": message, "type": kind, "code": status}}
    return JSONResponse(content, status, headers)


class _Counted:
    """The figures of `/metrics`."""

    def __init__(self, prompts: Prompts, batches: Batches):
        self.prompts, self.batches = prompts, batches
        self._own = CollectorRegistry()
        self.requests = Counter(
            "ptrun_requests", "Requests by route and status", ["route", "status"],
            registry=self._own,
        )  # fmt: skip
        for name, text, value in (
            ("waiting_rows", "Rows that wait", lambda: len(batches.waiting)),
            ("rows_total", "Rows computed, slices of texts too", lambda: batches.rows),
            ("batches_total", "Batches computed", lambda: batches.batches),
            ("written_tokens_total", "Tokens written", lambda: batches.written),
            ("loaded_prompts", "Prompts in memory", lambda: len(prompts.loaded)),
            ("loaded_bytes", "Bytes of these prompts", lambda: prompts.size),
            ("unloaded_total", "Prompts unloaded for others", lambda: prompts.unloads),
        ):
            Gauge(f"ptrun_{name}", text, registry=self._own).set_function(value)

    def text(self) -> bytes:
        """Return the figures in the form of Prometheus."""
        return generate_latest(self._own)
