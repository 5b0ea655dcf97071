"""Serve finished runs over one frozen backbone: OpenAI's API, labels and rows over HTTP.

Rows of all runs share passes. Serves this machine alone unless --host says otherwise.
"""

import argparse
import errno
import logging
import re
import shlex
import signal
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from ptrun.config.arguments import Parser
from ptrun.errors import UserError, visible
from ptrun.files import read_text
from ptrun.serve.hosts import LOOPBACK, Hosts, is_address, named

EXAMPLES = """\
  ptrun serve outputs/runs/RUN outputs/runs/RUN
  ptrun serve outputs/runs --watch                 all runs below a folder, also new ones
  ptrun serve outputs/runs --host 0.0.0.0 --key-file keys.txt hardware=gpu
"""
_MORE = """\
GET  /v1/models                  the runs
POST /v1/chat/completions        {"model": RUN, "messages": [...]}, as the OpenAI client calls it
POST /v1/completions             {"model": RUN, "prompt": "..."}
POST /v1/classify                {"model": RUN, "input": [TEXT or {FIELD: TEXT}]}: all probabilities
POST /v1/predict                 the same input: the lines of ptrun predict
GET  /health, /metrics, /        is it alive, figures for Prometheus, a page to try a run
"""
_SHOWN = 10  # runs in the first lines


def _name(typed: str) -> str:
    """Return what clients send for a name that was typed."""
    if not re.fullmatch(r"[\w.:-]+", named(typed)):
        raise argparse.ArgumentTypeError(f"{typed!r}: expected a name or an address")
    return named(typed)


PARSER = Parser("serve", __doc__, EXAMPLES)
PARSER.epilog = f"{_MORE}\n{PARSER.epilog}"
PARSER.add_argument(
    "runs", nargs="+", metavar="RUN",
    help="run folders, or a folder with runs below it; and KEY=VALUE, as of ptrun predict",
)  # fmt: skip
PARSER.add_argument("--watch", action="store_true", help="offer new runs, and drop removed ones")
PARSER.add_argument("--host", default="127.0.0.1", help="address; default: this machine")
PARSER.add_argument("--port", type=int, default=8000, help="default 8000; 0 takes a free one")
PARSER.add_argument(
    "--name", action="append", default=[], metavar="HOST", type=_name,
    help="another name of the server; with --host 0.0.0.0 or :: addresses need none",
)  # fmt: skip
PARSER.add_argument("--key-file", type=Path, metavar="FILE", help="bearer keys, one a line")
for option, default, unit, text in (
    ("memory", 1000, "MB", "of loaded prompts; default 1000"),
    ("batch-tokens", 4096, "N", "of a batch; default 4096"),
    ("wait", 5.0, "MS", "a row waits for others; default 5 ms"),
    ("queue", 1000, "N", "rows that may wait; default 1000"),
    ("max-tokens", 1024, "N", "of a text; default 1024"),
    ("timeout", 120.0, "S", "of a request; default 120 s"),
):
    PARSER.add_argument(f"--{option}", type=type(default), default=default, metavar=unit, help=text)


def main(arguments: Sequence[str]) -> None:
    """Serve until a signal; requests that were accepted are answered first."""
    args = PARSER.parse(arguments)
    keys = _keys(args.key_file)
    try:
        import uvicorn

        from ptrun.serve import serving
        from ptrun.serve.connections import TimedProtocol
    except ImportError as error:
        raise UserError("serve needs FastAPI: pip install 'ptrun[serve]'.") from error
    from ptrun.serve.batches import Batches
    from ptrun.serve.prompts import Prompts

    typed = [word for word in args.runs if "=" in word]
    places = [Path(word).expanduser() for word in args.runs if "=" not in word]
    if gone := [place for place in places if not place.is_dir()]:
        raise UserError(f"serve {gone[0]}: no such folder.")
    prompts = Prompts(places, typed, most_bytes=args.memory * 10**6, watch=args.watch)
    options = {"budget": args.batch_tokens, "wait": args.wait / 1000}
    batches = Batches(prompts, **options, most=args.queue, longest=args.max_tokens)
    listening = _listening(args.host, args.port)
    address = ip_address(listening.getsockname()[0])
    names = (named(args.host) or str(address), str(address), *args.name, *LOOPBACK)
    if not (keys or address.is_loopback):
        logging.getLogger(__name__).warning(
            "serve: --host %s without keys: everyone who reaches it may ask. Type --key-file FILE, "
            "or leave --host out.", args.host
        )  # fmt: skip
    limits = serving.Limits(seconds=args.timeout)
    hosts = Hosts(names, addresses=address.is_unspecified)
    app = serving.made(prompts, batches, hosts=hosts, keys=keys, limits=limits)
    config = uvicorn.Config(
        app, http=TimedProtocol, ws="none", host=args.host, port=args.port,
        log_level="warning", access_log=False,
        timeout_graceful_shutdown=round(args.timeout), server_header=False,
    )  # fmt: skip
    port, name = listening.getsockname()[1], prompts.shared.backbone.name
    count, host = len(prompts.folders), f"[{names[0]}]" if ":" in names[0] else names[0]
    print(f"{count} run{'s' * (count != 1)} on {name}: http://{host}:{port}", flush=True)
    for facts in map(prompts.facts, prompts.ids()[:_SHOWN]):
        run = facts.get("ptrun", {"fields": ["unknown"], "answer": "unknown"})
        reads = ", ".join(run["fields"])
        print(visible(f"  {facts['id']} reads {reads}; answers: {run['answer']}"))
    print(f"  and {count - _SHOWN} more\n" if count > _SHOWN else "", end="")
    print("Open the address in a browser to try them; Ctrl-C ends it.", flush=True)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a terminal that was closed
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        uvicorn.Server(config).run([listening])
    finally:
        batches.close()


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; `::` takes connections of both versions of IP."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = ":" in host and socket.has_dualstack_ipv6()
    place = (host.strip("[]"), port)
    try:
        listening = socket.create_server(place, family=family, dualstack_ipv6=both)
    except (OSError, OverflowError) as error:
        advice = "Type another --port, or --port 0."
        if isinstance(error, OSError) and error.errno not in (errno.EADDRINUSE, errno.EACCES):
            advice = "Type --host with an address of this machine, or 0.0.0.0 for all of them."
            if not is_address(named(host)):
                advice += f" A name that clients use is --name {shlex.quote(host)}."
        raise UserError(f"serve: cannot listen at {host}:{port} ({error}). {advice}") from error
    # connections inherit it; without it, the body of each answer waits 40 ms for the header's ACK
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _keys(file: Path | None) -> list[str]:
    """Return the keys of a file."""
    if file is None:
        return []
    try:  # the mark that some editors write is no part of a key
        lines = read_text(file, links=True).removeprefix("\ufeff").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--key-file {file}: cannot be read ({type(error).__name__}).") from error
    keys = [line.strip() for line in lines if line.strip()]
    if not keys or any(len(key) < 16 for key in keys):
        raise UserError(f"--key-file {file}: expected one key a line, of 16 letters or more.")
    return keys
