"""The routes of `ptrun serve`: OpenAI's, labels, rows, health and metrics.

Every request passes three checks: its Host is one of the server's names, its body is small enough,
and, with `--key-file`, it has one of the keys, which `/health` and the page do not need.
"""

import asyncio
import hashlib
import hmac
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ptrun import __version__
from ptrun.errors import visible
from ptrun.files import from_json
from ptrun.serve.answers import (
    Form,
    Refused,
    check_text,
    error_of,
    error_response,
    event_of,
    line_of,
    refusal,
)
from ptrun.serve.batches import Batches, QueueFull
from ptrun.serve.forms import document
from ptrun.serve.hosts import Hosts
from ptrun.serve.prompts import Prompts, UnknownRun
from ptrun.serve.requests import (
    ChatRequest,
    CompletionRequest,
    InvalidRequest,
    Model,
    PredictRequest,
    RowsRequest,
    parsed,
)
from ptrun.serve.rows import WaitingRow

_OFFERED = (
    "For texts there are /v1/chat/completions and /v1/completions, for labels /v1/classify, for "
    "other rows /v1/predict."
)
_PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")


def _hash(tag: str) -> str:
    """Return the hash of the one element of the page with a tag, for its policy."""
    text = _PAGE.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_SAFE = {
    "Content-Security-Policy": f"default-src 'none'; style-src {_hash('style')}; script-src "
    f"{_hash('script')}; connect-src 'self'; base-uri 'none'; form-action 'none'",
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
    app = FastAPI(title="ptrun", version=__version__, docs_url=None, redoc_url=None)
    app.openapi = partial(document, app)  # type: ignore[method-assign]
    asking = _Asking(prompts, batches, limits)
    counted = _Counted(prompts, batches)

    app.add_middleware(_Checked, hosts=hosts, keys=keys, count=counted.requests)

    @app.exception_handler(Refused)
    @app.exception_handler(QueueFull)
    @app.exception_handler(UnknownRun)
    @app.exception_handler(Exception)
    async def refused(_: Request, error: Exception) -> Response:
        return error_response(refusal(error))

    @app.exception_handler(HTTPException)  # no such address, or method
    async def unknown(request: Request, error: HTTPException) -> Response:
        said = f"{request.method} {visible(request.url.path)}: {error.detail}."
        said += " " + _OFFERED if error.status_code == 404 else ""
        return error_response(Refused(error.status_code, said), error.headers)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(counted.text(), media_type="text/plain; version=0.0.4")

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            raise Refused(406, f"/ is a page for browsers. {_OFFERED}")
        return HTMLResponse(_PAGE)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [prompts.facts(run_id) for run_id in prompts.ids()]}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        return prompts.facts(prompts.named(name))

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
            if self.keys and path not in ("/", "/health"):
                kind, _, value = request.headers.get("authorization", "").partition(" ")
                typed = (value.strip() if kind.lower() == "bearer" else "").encode()
                if not any([hmac.compare_digest(typed, key.encode()) for key in self.keys]):
                    raise Refused(401, "a key is needed: Authorization: Bearer KEY.")
        except Refused as error:
            await error_response(error)(scope, receive, sent)
            return
        await self.app(scope, receive, sent)


class _Asking:
    """Turns requests into jobs, and answers into responses."""

    def __init__(self, prompts: Prompts, batches: Batches, limits: Limits):
        self.prompts, self.batches, self.limits = prompts, batches, limits

    async def classify(self, request: Request) -> dict[str, Any]:
        """Return labels with the probabilities of all."""
        answers = await self._answers(request, self._jobs(await self._asked(request, RowsRequest)))
        if any(a.prediction.probabilities is None for a in answers):
            raise Refused(400, f"{answers[0].loaded.id} has no probabilities; use /v1/predict.")
        lines = [line_of(answer, probabilities=True) for answer in answers]
        keys = ("probabilities", "shortened")
        data = [
            {"index": index, "label": line["prediction"], **{k: line[k] for k in keys if k in line}}
            for index, line in enumerate(lines)
        ]
        return {"object": "list", "model": answers[0].loaded.id, "data": data}

    async def predict(self, request: Request) -> Response:
        """Return the lines of `ptrun predict`, or stream texts as completions."""
        asked = await self._asked(request, PredictRequest)
        jobs = self._jobs(asked)
        if asked.stream:
            form = Form(CompletionRequest(model=asked.model, prompt=" "))
            return await self._streamed(jobs, form)
        answers = await self._answers(request, jobs)
        head = {"object": "list", "model": answers[0].loaded.id}
        return JSONResponse({**head, "data": [line_of(answer) for answer in answers]})

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
        if len(asked.rows) * asked.n > self.limits.rows:
            said = f"{len(asked.rows)} prompts with n={asked.n}; at most {self.limits.rows} texts."
            raise Refused(400, said, key="prompt")
        form, wish, last = Form(asked), asked.wish, self.prompts.shared.backbone.embedding_rows - 1
        if outside := [token for token, _ in wish.logit_bias or () if token > last]:
            said = f"logit_bias has the token {outside[0]}; the model has those from 0 to {last}."
            raise Refused(400, said, key="logit_bias")
        waiting = [
            WaitingRow(asked.model, row, wish, uncut=True, number=number, choice=choice)
            for number, row in enumerate(asked.rows, start=1)
            for choice in range(asked.n)
        ]
        if asked.stream:
            return await self._streamed(waiting, form)
        answers = await self._answers(request, waiting)
        for answer in answers if not wish.echo else ():
            check_text(answer)
        # thousands of log-probabilities take their time, in which others are answered
        return await asyncio.to_thread(lambda: JSONResponse(form.whole(answers)))

    def _jobs(self, asked: RowsRequest) -> list[WaitingRow]:
        if not 1 <= len(asked.rows) <= self.limits.rows:
            said = f"input has {len(asked.rows)} rows; expected 1 to {self.limits.rows}."
            raise Refused(400, said, key="input")
        rows = enumerate(asked.rows, start=1)
        return [WaitingRow(asked.model, row, number=number) for number, row in rows]

    async def _asked(self, request: Request, kind: type[Model]) -> Model:
        """Return the typed request of a body, which has at most `Limits.body` bytes."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                return parsed(kind, from_json(await self._body(request)))
        except TimeoutError as error:
            raise Refused(408, f"no whole body within {self.limits.seconds:g} s.") from error
        except ClientDisconnect as error:
            raise Refused(499, "the client left.") from error
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

    async def _answers(self, request: Request, jobs: Sequence[WaitingRow]) -> list[WaitingRow]:
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
            _cancel(jobs)
            for wait in waits:
                if wait.done() and not wait.cancelled():
                    wait.exception()  # asyncio logs what nobody looks at

    async def _streamed(self, jobs: Sequence[WaitingRow], form: Form) -> Response:
        """Return a stream of texts; its first event says whether the jobs were accepted."""
        loop, texts = asyncio.get_running_loop(), asyncio.Queue[tuple[int, str | None, int]]()

        def tell(index: int, text: Any) -> None:  # the text so far; the future when it is done
            said = text if isinstance(text, str) else None
            event = (index, said, len(jobs[index].scores))
            loop.call_soon_threadsafe(texts.put_nowait, event)

        for index, job in enumerate(jobs):
            job.told = partial(tell, index)
            job.done.add_done_callback(job.told)
        self.batches.add(jobs)
        try:
            event = await asyncio.wait_for(texts.get(), self.limits.seconds)
            index = event[0]
            if event[1] is None:  # it has failed, or is a label
                check_text(jobs[index].done.result(timeout=0))
        except Exception as error:
            _cancel(jobs)
            raise refusal(error) from error
        form.model = jobs[index].loaded.id
        texts.put_nowait(event)
        return StreamingResponse(
            self._events(jobs, form, texts),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},  # nginx would collect the pieces
        )

    async def _events(
        self,
        jobs: Sequence[WaitingRow],
        form: Form,
        texts: "asyncio.Queue[tuple[int, str | None, int]]",
    ) -> AsyncIterator[str]:
        """Yield the pieces of texts; a client that leaves cancels the jobs."""
        sent, scored = [""] * len(jobs), [0] * len(jobs)
        answers: dict[int, WaitingRow] = {}
        until = time.monotonic() + self.limits.seconds
        try:
            for index in range(len(jobs)) if form.chat else ():
                yield form.event(index, "", begins=True)
            while len(answers) < len(jobs):
                index, text, count = await asyncio.wait_for(texts.get(), until - time.monotonic())
                job, start, calls = jobs[index], len(sent[index]), list[Any]()
                if text is None:
                    answers[index] = job.done.result(timeout=0)
                    letters, calls = form.said(answers[index])
                else:
                    letters = form.sure(job, text)
                if letters.startswith(sent[index]) and letters != sent[index]:
                    yield form.event(index, letters[start:], form.scores(job, scored[index], count))
                    sent[index], scored[index] = letters, count
                if text is None:
                    rest = form.scores(job, scored[index]) if count > scored[index] else None
                    yield form.event(index, "", rest, answers[index], calls)
            if form.counts:
                yield form.piece([], [answers[index] for index in range(len(jobs))])
            yield "data: [DONE]\n\n"
        except Exception as error:  # the status is sent: the stream says what is wrong
            yield event_of(error_of(refusal(error)))
        finally:
            _cancel(jobs)


def _cancel(jobs: Sequence[WaitingRow]) -> None:
    """Drop rows whose answers nobody waits for."""
    for job in jobs:
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
            ("rows_total", "Rows computed", lambda: batches.rows),
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
