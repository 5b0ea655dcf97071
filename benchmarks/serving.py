"""Compare `ptrun serve` with PEFT that switches adapters.

    make weights && python benchmarks/serving.py [--shapes labels,texts] [--requests 512]

16 prefixes over one frozen model, 32 clients. MiniLM answers labels, SmolLM2 writes 16 tokens. The
other is a FastAPI server over PEFT: it waits as long for requests, forms batches of those with one
adapter, and calls `set_adapter` before each. The prefixes are of one step: what they answer does
not matter here. `first` is how long a stream waits for its first text beside 16 texts of 200
tokens, which PEFT's server does not offer. Writes results/serving.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from http.client import HTTPConnection
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY
from statistics import median, quantiles
from typing import Any

from running import HERE, PTRUN, RESULTS, ptrun, results

PROMPTS, CLIENTS, TOKENS, WAIT = 16, 32, 16, 0.005
SHAPES = {
    "labels": ("minilm_l6", "task=pocket_sentiment", "sentence"),
    "texts": ("smollm2_135m", "task=pocket_writing", "facts"),
}
ROWS = "+task.source.rows={train: 64, validation: 8, test: 8}"


def prefixes(shape: str, weights: Path, out: Path) -> list[Path]:
    """Return the folders of runs of one step."""
    backbone, task, _ = SHAPES[shape]
    line = [f"backbone={backbone}", f"backbone.path={weights / backbone}", task, ROWS]
    line += ["method=prefix_peft", "train.max_steps=1", "hardware.precision=fp32"]
    line += ["readout.max_new_tokens=16"] if shape == "texts" else []
    seeds = ",".join(map(str, range(PROMPTS)))
    ptrun("-m", *line, f"seed={seeds}", f"outputs={out}")
    return [out / "runs" / run["run_id"] for run in results(out)]


def texts_of(shape: str) -> list[str]:
    """Return texts to ask about."""
    from ptrun.config.compose import compose_run

    _, task, field = SHAPES[shape]
    made = compose_run([task]).components()["task"].build(None, None)
    return [e.fields[field] for e in made.load("test")[:64]]


def ask(client: HTTPConnection, shape: str, run: str, text: str) -> float:
    """Ask once, and return the seconds."""
    began = time.monotonic()
    path, body = "/v1/classify", {"model": run, "input": [text]}
    if shape == "texts":
        path, body = "/v1/completions", {"model": run, "prompt": text, "max_tokens": TOKENS}
    client.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = client.getresponse()
    found = response.read()
    assert response.status == 200, found
    return time.monotonic() - began


def measured(address: str, shape: str, runs: list[str], requests: int, clients: int) -> dict:
    """Return requests a second, and the median and the 99th percentile of their times."""
    texts, host = texts_of(shape), address.removeprefix("http://")
    jobs = [(runs[i % len(runs)], texts[i % len(texts)]) for i in range(requests)]
    with closing(HTTPConnection(host)) as client:
        for run in runs:
            ask(client, shape, run, texts[0])  # every prompt is loaded
    idle = [HTTPConnection(host) for _ in range(clients)]

    def asked(job: tuple[str, str]) -> float:
        client = idle.pop()
        try:
            return ask(client, shape, *job)
        finally:
            idle.append(client)

    with ThreadPoolExecutor(clients) as pool:
        began = time.monotonic()
        times = list(pool.map(asked, jobs))
        seconds = time.monotonic() - began
    for client in idle:
        client.close()
    return {
        "rate": requests / seconds,
        "p50": median(times),
        "p99": quantiles(times, n=100)[-1],
    }


def served(line: list[str]) -> tuple[subprocess.Popen, str]:
    """Start a server; return its process and address."""
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def memory(process: subprocess.Popen) -> float:
    """Return the most memory that a process has held, in MiB."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def first_text(address: str, runs: list[str]) -> float:
    """Return how many seconds a stream waits for its first text beside long texts."""
    texts, host = texts_of("texts"), address.removeprefix("http://")
    sampled = {"max_tokens": 200, "temperature": 1.0}  # else they may end

    def asked(number: int, **more: Any) -> HTTPConnection:
        body = {"model": runs[number], "prompt": texts[number], "seed": number, **sampled, **more}
        client = HTTPConnection(host)
        client.request("POST", "/v1/completions", json.dumps(body))
        return client

    long = [asked(number) for number in range(PROMPTS)]
    time.sleep(2)
    began = time.monotonic()
    client = asked(0, stream=True)
    response = client.getresponse()
    for line in response:
        if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"]:
            break
    seconds = time.monotonic() - began
    for other in [response, client, *long]:
        other.close()
    return seconds


def of_server(line: list[str], shape: str, runs: list[str], requests: int, clients: int) -> dict:
    """Return the figures of a server, that is started and stopped."""
    process, address = served(line)
    try:
        found = measured(address, shape, runs, requests, clients)
        if shape == "texts" and "serve" in line:
            found["first"] = first_text(address, runs)
        return {**found, "peak": memory(process)}
    finally:
        process.kill()
        process.wait()


def peer(told: dict[str, Any]) -> None:
    """Serve PEFT's adapters: batches of one adapter, `set_adapter` before each."""
    import torch
    import uvicorn
    from fastapi import FastAPI
    from peft import PeftModel
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )

    labels = told["shape"] == "labels"
    kind: Any = AutoModelForSequenceClassification if labels else AutoModelForCausalLM
    tokenizer = AutoTokenizer.from_pretrained(told["model"], padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = kind.from_pretrained(told["model"], dtype=torch.float32)
    first, *others = told["adapters"].items()
    model = PeftModel.from_pretrained(model, first[1], adapter_name=first[0]).eval()
    for name, folder in others:
        model.load_adapter(folder, adapter_name=name)
    waiting: list[tuple[str, str, threading.Event, dict]] = []
    changed = threading.Condition()

    @torch.no_grad()
    def work() -> None:
        while True:
            with changed:
                changed.wait_for(lambda: bool(waiting))
            time.sleep(WAIT)
            with changed:
                name = waiting[0][0]
                own = [job for job in waiting if job[0] == name]
                waiting[:] = [job for job in waiting if job[0] != name]
            model.set_adapter(name)
            rows = tokenizer([job[1] for job in own], return_tensors="pt", padding=True)
            if labels:
                found: Any = model(**rows).logits.softmax(-1).tolist()
            else:
                written = model.generate(**rows, max_new_tokens=TOKENS, do_sample=False)
                found = tokenizer.batch_decode(written[:, rows["input_ids"].shape[1] :])
            for job, one in zip(own, found, strict=True):
                job[3]["answer"] = one
                job[2].set()

    threading.Thread(target=work, daemon=True).start()
    app = FastAPI()

    def answered(body: dict) -> dict:
        text = body["input"][0] if labels else body["prompt"]
        done, found = threading.Event(), dict[str, Any]()
        with changed:
            waiting.append((body["model"], text, done, found))
            changed.notify()
        done.wait()
        return found

    app.post("/v1/classify")(answered)
    app.post("/v1/completions")(answered)
    config = uvicorn.Config(app, port=0, log_level="warning")
    socket = config.bind_socket()
    socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # as ptrun serve does
    socket.listen(100)
    print(f"http://127.0.0.1:{socket.getsockname()[1]}", flush=True)
    uvicorn.Server(config).run([socket])


def compared(shape: str, weights: Path, folder: Path, requests: int) -> dict[str, dict]:
    """Return the figures of both servers."""
    runs = prefixes(shape, weights, folder / "out")
    names = [run.name for run in runs]
    serve = [*PTRUN, "serve", *map(str, runs), "--port", "0"]
    found = {
        "ptrun serve": of_server(serve, shape, names, requests, CLIENTS),
    }
    adapters = {}
    for run in runs:
        adapters[run.name] = str(folder / "adapters" / run.name)
        (folder / "adapters").mkdir(exist_ok=True)
        ptrun("export", str(run), "--to", "peft", adapters[run.name])
    told = {"shape": shape, "model": str(weights / SHAPES[shape][0]), "adapters": adapters}
    (folder / "told.json").write_text(json.dumps(told))
    serve = [sys.executable, __file__, "--peer", str(folder / "told.json")]
    found["PEFT set_adapter"] = of_server(serve, shape, names, requests, CLIENTS)
    return found


def page(found: dict[str, dict[str, dict]], requests: int) -> str:
    """Return a table for each shape."""
    lines = [
        "# One backbone, many prompts", "",
        f"{PROMPTS} prefixes of 20 vectors, {requests} requests, {CLIENTS} clients, fp32 on two "
        f"cores of a CPU, {date.today()}. `python benchmarks/serving.py --requests {requests}`",
    ]  # fmt: skip
    for shape, ways in found.items():
        best = ways["ptrun serve"]["rate"]
        lines += ["", f"## {shape} ({SHAPES[shape][0]})", ""]
        lines += [
            "| | requests/s | ptrun / this | p50, s | p99, s | first text, s | peak, MiB |",
            "|---|" + "---|" * 6,
        ]
        for name, own in ways.items():
            size = f"{own['peak']:,.0f}" if "peak" in own else "-"
            first = f"{own['first']:.2f}" if "first" in own else "-"
            times = f"{own['p50']:.3f} | {own['p99']:.3f} | {first}"
            lines.append(
                f"| {name} | {own['rate']:.1f} | {best / own['rate']:.2f} | {times} | {size} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, default=HERE.parent / "weights")
    parser.add_argument("--shapes", default="labels,texts")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        peer(json.loads(given.peer.read_text()))
        return
    found = {}
    for shape in given.shapes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            weights = given.weights.resolve()
            found[shape] = compared(shape, weights, Path(folder), given.requests)
        print(json.dumps(found[shape]), flush=True)
        (RESULTS / "serving.md").write_text(page(found, given.requests), encoding="utf-8")


if __name__ == "__main__":
    main()
