"""The routes of `ptrun serve`: OpenAI's, labels, rows, health and metrics.

Every request passes three checks: its Host is one of the server's names, its body is small enough,
and, with `--key-file`, it has one of the keys, which `/health` does not need.
"""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Sequence
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
from ptrun.errors import visible
from ptrun.files import from_json
from ptrun.serve.answers import (
    Form,
    Refused,
    check_text,
    error_response,
    line_of,
    refusal,
    usage_of,
)
from ptrun.serve.batches import Batches, QueueFull, RowAnswer, WaitingRow
from ptrun.serve.hosts import Hosts
from ptrun.serve.prompts import Prompts, UnknownRun
from ptrun.serve.requests import (
    ChatRequest,
    CompletionRequest,
    InvalidRequest,
    Model,
    RowsRequest,
    parsed,
)

_PAGE = Path(__file__).with_name("page.html")
_SAFE = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


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


def made(
    prompts: Prompts,
    batches: Batches,
    *,
    hosts: Hosts,
    keys: Sequence[str] = (),
    limits: Limits = Limits(),
) -> FastAPI:
    """Return the application.

    Args:
        prompts: the runs.
        batches: computes the answers.
        hosts: the names by which the server may be called.
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
        return error_response(error)

    @app.exception_handler(QueueFull)
    async def full(_: Request, error: QueueFull) -> Response:
        return error_response(Refused(429, str(error)))

    @app.exception_handler(HTTPException)  # no such address, or method
    async def unknown(request: Request, error: HTTPException) -> Response:
        path = visible(request.url.path)
        return error_response(
            Refused(error.status_code, f"{request.method} {path}: {error.detail}")
        )

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
        return {"object": "list", "data": [prompts.facts(run_id) for run_id in prompts.ids()]}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        try:
            return prompts.facts(prompts.named(name))
        except UnknownRun as error:
            raise Refused(404, str(error), code="model_not_found") from error

    app.post("/v1/classify")(asking.classify)
    app.post("/v1/predict")(asking.predict)
    app.post("/v1/completions")(asking.complete)
    app.post("/v1/chat/completions")(asking.chat)
    return app


_PATHS = {"/", "/health", "/metrics", "/v1/models", "/v1/classify", "/v1/predict"}
_PATHS |= {"/v1/completions", "/v1/chat/completions"}


class _Checked:
    """Checks each request before its route, adds headers to the answer, and counts it."""

    def __init__(self, app: ASGIApp, hosts: Hosts, keys: Sequence[str], count: Counter):
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
            if said := self.hosts.refusal(path, request.headers):
                raise Refused(421, said)
            if path != "/health":
                _check_key(request, self.keys)
        except Refused as error:
            await error_response(error)(scope, receive, sent)
            return
        await self.app(scope, receive, sent)


def _check_key(request: Request, keys: Sequence[str]) -> None:
    """Refuse a request without a key: `Bearer KEY`, or the password of a browser."""
    if not keys:
        return
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    typed = value.strip()
    if kind.lower() == "basic":
        try:
            typed = base64.b64decode(typed, validate=True).decode().partition(":")[2]
        except ValueError:
            typed = ""
    fits = [hmac.compare_digest(typed.encode(), key.encode()) for key in keys]
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
            raise Refused(400, f"{answers[0].loaded.id} has no probabilities; use /v1/predict.")
        lines = [line_of(answer, probabilities=True) for answer in answers]
        keys = ("probabilities", "shortened")
        data = [
            {"index": index, "label": line["prediction"], **{k: line[k] for k in keys if k in line}}
            for index, line in enumerate(lines)
        ]
        return {"object": "list", "model": answers[0].loaded.id, "data": data}

    async def predict(self, request: Request) -> dict[str, Any]:
        """Return the lines of `ptrun predict`."""
        answers = await self._of_rows(request)
        return {
            "object": "list",
            "model": answers[0].loaded.id,
            "data": [line_of(answer) for answer in answers],
        }

    async def complete(self, request: Request) -> Response:
        """Return or stream the text after a prompt."""
        return await self._write(request, CompletionRequest)

    async def chat(self, request: Request) -> Response:
        """Return or stream the next turn of a conversation."""
        return await self._write(request, ChatRequest)

    async def _write(
        self, request: Request, kind: type[ChatRequest | CompletionRequest]
    ) -> Response:
        asked = await self._asked(request, kind)
        rows, usage = asked.rows, asked.stream_options.include_usage
        if len(rows) > self.limits.rows:
            raise Refused(400, f"{len(rows)} prompts; at most {self.limits.rows}.", key="prompt")
        form = Form(chat=kind is ChatRequest, model=asked.model, usage=usage)
        waiting = [WaitingRow(asked.model, row, asked.wish, uncut=True) for row in rows]
        if asked.stream:
            if len(rows) > 1:
                raise Refused(400, "stream takes one prompt.", key="stream")
            return await self._streamed(request, waiting[0], form)
        answers = await self._answers(request, waiting)
        for answer in answers if not asked.wish.echo else ():
            check_text(answer)
        return JSONResponse(form.whole(answers))

    async def _of_rows(self, request: Request) -> list[RowAnswer]:
        asked = await self._asked(request, RowsRequest)
        if not 1 <= len(asked.rows) <= self.limits.rows:
            said = f"input has {len(asked.rows)} rows; expected 1 to {self.limits.rows}."
            raise Refused(400, said, key="input")
        return await self._answers(request, [WaitingRow(asked.model, row) for row in asked.rows])

    async def _asked(self, request: Request, kind: type[Model]) -> Model:
        """Return the typed request of a body, which has at most `Limits.body` bytes."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return parsed(kind, from_json(await self._body(request)))
        except TimeoutError as error:
            raise Refused(408, f"no whole body within {self.limits.seconds:g} s.") from error
        except InvalidRequest as error:
            raise Refused(400, str(error), key=error.key) from error
        except (ValueError, RecursionError) as error:
            raise Refused(400, "the body is no JSON.") from error

    async def _body(self, request: Request) -> bytes:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.limits.body:
                raise Refused(413, f"the body has more than {self.limits.body:,} bytes.")
            parts.append(part)
        return b"".join(parts)

    async def _answers(self, request: Request, jobs: Sequence[WaitingRow]) -> list[RowAnswer]:
        """Wait for answers; a client that leaves, or waits too long, gets none."""
        self.batches.add(jobs)
        until = time.monotonic() + self.limits.seconds
        waits = [asyncio.wrap_future(job.done) for job in jobs]
        try:
            while True:
                _, left = await asyncio.wait(waits, timeout=0.5)
                if not left:
                    return [await wait for wait in waits]
                if await request.is_disconnected():
                    raise Refused(499, "the client left.")
                if time.monotonic() > until:
                    raise Refused(504, f"no answer within {self.limits.seconds:g} s.")
        except Exception as error:
            raise refusal(error) from error
        finally:
            for job in jobs:
                job.done.cancel()
            for wait in waits:
                if wait.done() and not wait.cancelled():
                    wait.exception()  # asyncio logs what nobody looks at

    async def _streamed(self, request: Request, job: WaitingRow, form: "Form") -> Response:
        """Return a stream of the text; its first event says whether the job was accepted."""
        loop, texts = asyncio.get_running_loop(), asyncio.Queue[str | None]()

        def told(text: str) -> None:
            loop.call_soon_threadsafe(texts.put_nowait, text)

        job.told = told
        job.done.add_done_callback(lambda _: loop.call_soon_threadsafe(texts.put_nowait, None))
        self.batches.add([job])
        begun = await texts.get()
        form.model = job.loaded.id if job.ready else form.model
        if begun is None:  # it has failed, or is a label
            try:
                check_text(job.done.result(timeout=0))
            except Exception as error:
                raise refusal(error) from error
        return StreamingResponse(
            self._events(job, form, texts, begun), media_type="text/event-stream"
        )

    async def _events(
        self, job: WaitingRow, form: "Form", texts: "asyncio.Queue[str | None]", text: str | None
    ) -> AsyncIterator[str]:
        """Yield the pieces of a text; a client that leaves cancels the job."""
        sent = ""
        try:
            yield form.event("", None, begins=True)
            until = time.monotonic() + self.limits.seconds
            while text is not None and time.monotonic() < until:
                letters = text.rstrip("\ufffd")  # of the last one not all bytes may be there
                if letters.startswith(sent) and letters != sent:
                    yield form.event(letters[len(sent) :], None)
                    sent = letters
                text = await texts.get()
            answer = job.done.result(timeout=0)
            rest = str(answer.prediction.value)
            if rest.startswith(sent) and rest != sent:
                yield form.event(rest[len(sent) :], None)
            yield form.event("", "stop" if answer.ended else "length")
            if form.usage:
                yield form.piece([], usage=usage_of([answer]))
            yield "data: [DONE]\n\n"
        except Exception as error:  # the status is sent: the stream says what is wrong
            yield f"data: {json.dumps({'error': {'message': refusal(error).message}})}\n\n"
        finally:
            job.done.cancel()


class _Counted:
    """The figures of `/metrics`."""

    def __init__(self, prompts: Prompts, batches: Batches):
        self.prompts, self.batches = prompts, batches
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "ptrun_requests", "Requests by route and status", ["route", "status"],
            registry=self._registry,
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
            Gauge(f"ptrun_{name}", text, registry=self._registry).set_function(value)

    def text(self) -> bytes:
        """Return the figures in the form of Prometheus."""
        return generate_latest(self._registry)
