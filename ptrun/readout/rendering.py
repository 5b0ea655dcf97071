"""Renders chat templates in a process of its own, with limits on time, memory and output.

A template is a program that a stranger wrote. `Renderer` starts this file as a program, which
imports nothing of ptrun: it reads a request a line from standard input and writes an answer a line.
Templates see what transformers gives them (5.23), but for the clock, which stands still, and for
what draws random values.
"""

import atexit
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cache
from itertools import islice
from typing import Any

SECONDS = 2
"""Of the processor, for one conversation."""
BYTES = 2**30
"""Of memory, for the process."""
LETTERS = 2**23
"""Of a rendered conversation."""
CLOCK = "strftime_now"
_IMPORTING = "{{ 'a' | wordwrap | tojson | pprint | urlize }}{{ strftime_now('%d %b') }}"
"""Makes jinja2 import all it needs; afterwards the process can open no file."""

Turns = Sequence[dict[str, Any]]
Rendered = tuple[str, list[tuple[int, int]]]
"""A text, and where `{% generation %}` stands in it: first character and the one behind it."""
Asked = tuple[Mapping[str, Any], Mapping[str, tuple[Turns, bool]]]
"""What is read beside the turns; and texts by name: turns, and whether another one is opened."""


class TemplateError(Exception):
    """A template cannot be rendered, or asks for too much; `place` is that of the request."""

    def __init__(self, message: str, place: int):
        super().__init__(message)
        self.place = place


class Renderer:
    """The process that renders, started again after one that a template ended.

    >>> from ptrun.readout.rendering import RENDERER
    >>> turns = [{"role": "user", "content": "Hello."}]
    >>> RENDERER.render("[{{ messages[0].content }}]", "2026-01-01", [({}, {"it": (turns, False)})])
    ([{'it': ('[Hello.]', [])}], {'messages'})
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        atexit.register(self.close)

    def render(
        self, template: str, today: str, asked: Sequence[Asked]
    ) -> tuple[list[dict[str, Rendered]], set[str]]:
        """Return the texts of each request, and the names that the template reads.

        Args:
            template: its text.
            today: the date that it gets, as YYYY-MM-DD.
            asked: what is rendered.

        Raises:
            TemplateError: it raises, or exceeds a limit; `place` is that of the request.
        """
        if not asked:
            return [], set()
        lines = [json.dumps([template, today, *request]).encode() for request in asked]
        with self._lock:
            answers = self._answered(b"\n".join(lines) + b"\n", len(lines))
        for place, answer in enumerate(answers):
            if "error" in answer:
                raise TemplateError(answer["error"], place)
        texts = [{name: (*text,) for name, text in answer["texts"].items()} for answer in answers]
        return texts, {name for answer in answers for name in answer["reads"]}

    def close(self) -> None:
        """End the process, if this one started it."""
        process, self._process = self._process, None
        if process is not None and self._owner != os.getpid():
            process.returncode = 0  # another process waits for it
        elif process is not None:
            process.kill()
            process.communicate()

    def _answered(self, asked: bytes, count: int) -> list[dict[str, Any]]:
        """Return the answer to each line; the last one may be why there are no more."""
        if self._process is None or self._owner != os.getpid():
            self.close()
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "TZ": "UTC"},
            )  # fmt: skip
        process = self._process
        assert process.stdout is not None
        writer = threading.Thread(target=_write, args=(process.stdin, asked), daemon=True)
        try:
            writer.start()
            answers = [json.loads(line) for line in islice(process.stdout, count)]
            writer.join()
        except BaseException:  # an answer that nobody reads may not be the next one's
            self.close()
            raise
        if len(answers) < count:
            code = process.wait()
            self.close()
            limit = {-signal.SIGPROF: f"it takes more than {SECONDS} s of the processor"}
            answers.append({"error": limit.get(code, f"its process ended ({code})")})
        return answers


def _write(stdin: Any, asked: bytes) -> None:
    with suppress(BrokenPipeError, ValueError):  # its process ended, and is told of by its code
        stdin.write(asked)
        stdin.flush()


RENDERER = Renderer()


# The process that renders.


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # whoever asks ends this process
        signal.signal(number, signal.SIG_IGN)
    _rendered(_IMPORTING, "2000-01-01", {}, {"it": ([], False)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            answer = _rendered(*json.loads(line))
        except MemoryError:
            answer = {"error": f"it takes more than {BYTES >> 20:,} MiB of memory"}
        except Exception as error:  # a template raises what its author wrote
            answer = {"error": " ".join(str(error).split())[:160] or type(error).__name__}
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _rendered(template: str, today: str, names: dict[str, Any], asked: Any) -> dict[str, Any]:
    compiled, reads = _compiled(template, today)
    tracker, texts, letters = compiled.environment.tracker, {}, 0
    names = {"tools": None, "documents": None, **names}
    for name, (turns, opened) in asked.items():
        tracker.pieces, tracker.spans = [], []
        for piece in compiled.generate(names, messages=turns, add_generation_prompt=opened):
            tracker.pieces.append(piece)
            letters += len(piece)
            if letters > LETTERS:
                raise ValueError(f"it writes more than {LETTERS:,} letters")
        texts[name] = "".join(tracker.pieces), tracker.spans
    return {"texts": texts, "reads": reads}


@cache
def _compiled(template: str, today: str) -> tuple[Any, list[str]]:
    """Return a template, and the names that it reads."""
    import jinja2.debug  # which it would import at the first error
    from jinja2 import ext, meta, nodes, sandbox

    class Tracker(ext.Extension):
        """Notes where the text within `{% generation %}` stands."""

        tags = {"generation"}  # noqa: RUF012

        def __init__(self, environment: Any):
            super().__init__(environment)
            self.pieces: list[str] = []
            self.spans: list[tuple[int, int]] = []
            environment.extend(tracker=self)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_noted"), [], [], body).set_lineno(line)

        def _noted(self, caller: Any) -> str:
            text, start = str(caller()), sum(map(len, self.pieces))
            self.spans.append((start, start + len(text)))
            return text

    def refuse(message: Any) -> None:
        raise jinja2.TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **form)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Tracker, ext.loopcontrols]
    )
    environment.filters["tojson"] = as_json
    del environment.filters["random"], environment.globals["lipsum"]
    environment.globals["raise_exception"] = refuse
    reads = sorted(meta.find_undeclared_variables(environment.parse(template)))
    environment.globals[CLOCK] = date.fromisoformat(today).strftime
    return environment.from_string(template), reads


if __name__ == "__main__":
    _main()
