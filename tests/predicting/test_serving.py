"""`ptrun serve`: what clients get is what the runs answer, and hostile requests do no harm."""

import base64
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from ptrun.command.serve import _listening, main
from ptrun.errors import UserError
from ptrun.predicting import batches as serving_batches
from ptrun.predicting.prompts import Prompts
from ptrun.predicting.serving import Limits
from tests.predicting.conftest import serving
from tests.predicting.test_together import rows_of

KEY = "a-secret-of-many-letters"


_CLIENTS = []


def client(address, key="none"):
    """Return a client, which is closed after the test."""
    _CLIENTS.append(openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0))
    return _CLIENTS[-1]


@pytest.fixture(autouse=True)
def _closed():
    yield
    while _CLIENTS:
        _CLIENTS.pop().close()


def asked(address, route, **body):
    return httpx.post(f"{address}/v1/{route}", json=body, timeout=60)


def test_mixed_requests_of_many_clients_are_answered_as_alone(server, runs):
    def texts(name):
        found = runs[name].predict(rows_of(runs[name]))
        return [own["prediction"] for own in found]

    def written(name, row):
        made = client(server).completions.create(model=runs[name].id, prompt=row["facts"])
        return made.choices[0].text

    jobs = [(n, row) for i in range(8) for n in ("prefix", "lora", "cartridge")
            for row in [rows_of(runs[n])[i]]]  # fmt: skip
    sentences = [row["sentence"] for row in rows_of(runs["labels"])]
    with ThreadPoolExecutor(12) as pool:
        waits = [pool.submit(written, *job) for job in jobs]
        labels = pool.submit(asked, server, "classify", model=runs["labels"].id, input=sentences)
        found = [own.result() for own in waits]
        data = labels.result().json()["data"]
    for name in ("prefix", "lora", "cartridge"):
        own = [text for (other, _), text in zip(jobs, found, strict=True) if other == name]
        assert own == texts(name)
    rows = [{"sentence": text} for text in sentences]
    wanted = runs["labels"].predict(rows, probabilities=True)
    for own, other in zip(data, wanted, strict=True):
        assert own["label"] == other["prediction"]
        for label, share in own["probabilities"].items():
            assert share == pytest.approx(other["probabilities"][label], abs=1.01e-4)


def test_rows_and_several_labels(server, runs):
    texts = [row["text"] for row in rows_of(runs["topics"])]
    found = asked(server, "predict", model=runs["topics"].id, input=texts).json()["data"]
    wanted = runs["topics"].predict([{"text": text} for text in texts])
    assert [own["prediction"] for own in found] == [own["prediction"] for own in wanted]


def test_the_openai_client_lists_completes_chats_and_streams(server, runs):
    own, name = client(server), runs["prefix"].id
    assert name in [model.id for model in own.models.list()]
    assert own.models.retrieve(name).id == name
    prompt = rows_of(runs["prefix"])[0]["facts"]
    whole = own.completions.create(model=name, prompt=[prompt, prompt])
    assert whole.choices[0].text == whole.choices[1].text
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    pieces = own.completions.create(model=name, prompt=prompt, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": prompt}]
    chat = own.chat.completions.create(model=name, messages=turns)
    assert chat.choices[0].message.content == whole.choices[0].text
    events = list(own.chat.completions.create(model=name, messages=turns, stream=True))
    assert "".join(e.choices[0].delta.content or "" for e in events) == whole.choices[0].text
    assert events[-1].choices[0].finish_reason == chat.choices[0].finish_reason


def test_max_tokens_stop_and_seeds(server, runs):
    own, name = client(server), runs["lora"].id
    prompt = rows_of(runs["lora"])[1]["facts"]
    whole = own.completions.create(model=name, prompt=prompt).choices[0].text
    short = own.completions.create(model=name, prompt=prompt, max_tokens=3)
    assert short.usage.completion_tokens == 3 and short.choices[0].finish_reason == "length"
    assert whole.startswith(short.choices[0].text)
    letter = next(c for c in whole[3:] if c.isalpha())
    ended = own.completions.create(model=name, prompt=prompt, stop=letter).choices[0]
    assert ended.text == whole.partition(letter)[0].strip() and ended.finish_reason == "stop"
    drawn = []
    for seed in (1, 1, 2):
        made = own.completions.create(model=name, prompt=prompt, temperature=2.0, seed=seed)
        drawn.append(made.choices[0].text)
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_slices_write_what_one_pass_writes(folder, runs, monkeypatch, temperature):
    prompts = [row["facts"] for row in rows_of(runs["cartridge"])]
    found = []
    for size in (1000, 5):
        monkeypatch.setattr(serving_batches, "SLICE", size)
        with serving(folder) as (address, _, batches):
            made = client(address).completions.create(
                model=runs["cartridge"].id, prompt=prompts, temperature=temperature, seed=4
            )
            found.append([choice.text for choice in made.choices])
            passes = batches.batches
    assert found[0] == found[1] and passes > 3


def test_a_client_that_left_is_dropped(folder, runs, monkeypatch):
    monkeypatch.setattr(serving_batches._Told, "__call__", _slow(serving_batches._Told.__call__))
    with serving(folder, longest=10**6) as (address, _, batches):
        body = {"model": runs["prefix"].id, "prompt": "Frank Venn", "stream": True}
        body |= {"max_tokens": 60, "temperature": 3.0}
        with httpx.stream("POST", f"{address}/v1/completions", json=body) as response:
            next(response.iter_lines())
        labelled = asked(address, "classify", model=runs["labels"].id, input="a film")
        assert labelled.status_code == 200
        until = time.monotonic() + 10
        while batches.waiting and time.monotonic() < until:
            time.sleep(0.05)
        assert not batches.waiting and batches.written < 60


def _slow(call):
    def slowly(self, tokens):
        time.sleep(0.1)
        return call(self, tokens)

    return slowly


# Requests that are refused.

GOOD = {"prompt": "a"}
BAD = [
    ("completions", {"prompt": 3}, "prompt is 3; expected a text"),
    ("completions", {"prompt": []}, "expected a text"),
    ("completions", {**GOOD, "n": 2}, "n is 2; this server offers 1 alone"),
    ("completions", {**GOOD, "temperature": -1}, "temperature is -1; expected a number"),
    ("completions", {**GOOD, "temperature": True}, "temperature is True"),
    ("completions", {**GOOD, "top_p": 2}, "top_p is 2"),
    ("completions", {**GOOD, "max_tokens": 0}, "max_tokens is 0"),
    ("completions", {**GOOD, "max_tokens": 1.5}, "max_tokens is 1.5"),
    ("completions", {**GOOD, "stop": [1]}, "expected up to 8 short texts"),
    ("completions", {"prompt": ["a", "b"], "stream": True}, "stream takes one prompt"),
    ("chat/completions", {"messages": []}, "messages is empty"),
    ("chat/completions", {"messages": [{"role": "user"}]}, "expected a text"),
    ("chat/completions", {"messages": [3]}, "expected role and content"),
    ("classify", {"input": []}, "input has 0 rows"),
    ("classify", {"input": [["a"]]}, "expected a text or its fields"),
    ("classify", {"input": ["a"] * 300}, "input has 300 rows"),
    ("predict", {"input": [{"x": "a"}]}, "no field 'sentence'"),
]


@pytest.mark.parametrize(("route", "body", "said"), BAD)
def test_a_wrong_request_gets_400_and_the_reason(server, runs, route, body, said):
    found = asked(server, route, model=runs["labels"].id, **body)
    assert found.status_code == 400 and said in found.json()["error"]["message"], found.text


def test_runs_that_do_not_fit_the_route(server, runs):
    found = asked(server, "completions", model=runs["labels"].id, prompt="a")
    assert found.status_code == 400 and "writes no texts" in found.text
    stream = asked(server, "completions", model=runs["labels"].id, prompt="a", stream=True)
    assert stream.status_code == 400 and "writes no texts" in stream.text
    found = asked(server, "classify", model=runs["lora"].id, input="a")
    assert found.status_code == 400 and "has no probabilities" in found.text
    for model in ("nothing", "../labels", ""):
        found = asked(server, "classify", model=model, input="a")
        assert found.status_code in (400, 404)
    assert httpx.get(f"{server}/v1/models/nothing").status_code == 404
    elsewhere = httpx.get(f"{server}/v1/nothing")
    assert (
        elsewhere.status_code == 404 and "GET /v1/nothing" in elsewhere.json()["error"]["message"]
    )


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"\xff", b'{"a":' * 5000, b"NaN", b"3"])
def test_a_body_that_is_no_object(server, content):
    found = httpx.post(f"{server}/v1/classify", content=content)
    assert found.status_code == 400 and "the body is no JSON" in found.json()["error"]["message"]


def test_limits_of_body_queue_and_time(folder, runs, monkeypatch):
    name = runs["labels"].id
    with serving(folder, limits=Limits(body=2000, seconds=0.6), most=3) as (address, _, batches):
        assert asked(address, "classify", model=name, input="a" * 3000).status_code == 413
        assert asked(address, "classify", model=name, input=["a"] * 4).status_code == 429
        monkeypatch.setattr(batches, "wait", 2.0)
        assert asked(address, "classify", model=name, input="a").status_code == 504
        assert httpx.get(f"{address}/health").json() == {"status": "ok"}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "[::2]", "127.0.0.1.x"])
def test_another_host_is_refused(server, host):
    found = httpx.get(f"{server}/v1/models", headers={"Host": host})
    assert found.status_code == 421
    assert "access-control-allow-origin" not in found.headers


def test_every_route_but_health_needs_the_key(folder, runs, caplog):
    caplog.set_level(logging.DEBUG)
    with serving(folder, keys=["another-key-of-many-letters", KEY]) as (address, *_):
        assert httpx.get(f"{address}/health").status_code == 200
        for route in ("", "metrics", "v1/models", "docs", "openapi.json", "nothing"):
            found = httpx.get(f"{address}/{route}")
            assert found.status_code == 401 and KEY not in found.text
        wrongs = ["Bearer", "Basic %%%", f"Bearer {KEY}x", f"Token {KEY[:-1]}", KEY[:3]]
        for wrong in wrongs:
            headers = {"Authorization": wrong}
            assert httpx.get(f"{address}/v1/models", headers=headers).status_code == 401
        assert len(list(client(address, KEY).models.list())) == len(runs)
        browser = base64.b64encode(f"me:{KEY}".encode()).decode()
        page = httpx.get(f"{address}/", headers={"Authorization": f"Basic {browser}"})
        assert page.status_code == 200 and "One backbone, many prompts" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
    assert KEY not in caplog.text


def test_metrics_count_requests_and_rows(folder, runs):
    with serving(folder) as (address, *_):
        asked(address, "classify", model=runs["labels"].id, input=["a", "b"])
        text = httpx.get(f"{address}/metrics").text
    assert 'ptrun_requests_total{route="/v1/classify",status="200"} 1.0' in text
    assert "ptrun_rows_total 2.0" in text and "ptrun_waiting_rows 0.0" in text


# Runs that come, go, do not fit, or are too many for memory.


def test_least_used_prompts_are_unloaded(folder, runs):
    with serving(folder, most_bytes=1) as (address, prompts, _):
        for _ in range(2):
            for name in ("labels", "topics"):
                rows = [{"sentence": "a"}] if name == "labels" else [{"text": "a"}]
                found = asked(address, "predict", model=runs[name].id, input=rows)
                assert found.status_code == 200
        assert len(prompts.loaded) == 1 and prompts.unloads >= 3


def test_new_and_removed_runs_are_noticed(copied, runs, tmp_path, monkeypatch):
    monkeypatch.setattr("ptrun.predicting.prompts._LOOK_EVERY", 0.0)
    name = runs["topics"].id
    shutil.move(copied / name, tmp_path / "aside")
    with serving(copied) as (address, *_):
        assert asked(address, "predict", model=name, input="a").status_code == 404
        shutil.move(tmp_path / "aside", copied / name)
        assert asked(address, "predict", model=name, input="a").status_code == 200
        shutil.rmtree(copied / name)
        assert asked(address, "predict", model=name, input="a").status_code == 404


def test_a_damaged_prompt_is_refused_by_name_and_the_others_are_served(copied, runs):
    name = runs["topics"].id
    file = copied / name / "prompt.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    with serving(copied) as (address, *_):
        found = asked(address, "predict", model=name, input="a")
        assert found.status_code == 400 and name in found.text
        assert str(copied) not in found.text
        assert asked(address, "classify", model=runs["labels"].id, input="a").status_code == 200


def test_a_failed_batch_does_not_end_the_server(folder, runs, monkeypatch):
    with serving(folder) as (address, prompts, _):
        name, answers = runs["labels"].id, prompts.shared.answers
        monkeypatch.setattr(prompts.shared, "answers", lambda _: 1 / 0)
        found = asked(address, "classify", model=name, input="a")
        assert found.status_code == 500 and "ZeroDivisionError" in found.text
        monkeypatch.setattr(prompts.shared, "answers", answers)
        assert asked(address, "classify", model=name, input="a").status_code == 200
        assert threading.active_count() < 50


def test_a_row_that_fails_in_reading_does_not_end_the_server(folder, runs, monkeypatch):
    def fail(name):
        raise OSError("Stale file handle")

    with serving(folder) as (address, prompts, _):
        name, get = runs["prefix"].id, prompts.get
        monkeypatch.setattr(prompts, "get", fail)
        found = asked(address, "completions", model=name, prompt="Frank Venn", stream=True)
        assert found.status_code == 500 and "OSError" in found.text
        monkeypatch.setattr(prompts, "get", get)
        assert asked(address, "completions", model=name, prompt="Frank Venn").status_code == 200


# Two hundred hostile requests, fifty clients that leave, and a signal.

TEXTS = [
    "",
    "a",
    "\x00",
    "\ud7ff",
    "😀" * 50,
    "a " * 3000,
    "<script>",
    "../../etc/passwd",
    "{mask}",
]
VALUES = [None, True, -1, 0, 10**30, 1e308, "a", [], {}, [[[]]], {"a": {}}, *TEXTS]
KEYS = [
    "model",
    "prompt",
    "messages",
    "input",
    "max_tokens",
    "temperature",
    "stop",
    "seed",
    "stream",
]


def hostile(dice, names):
    """Return the route and the body of a hostile request."""
    routes = ["completions", "chat/completions", "classify", "predict"]
    body = {"model": dice.choice([*names, "x", "../x", None])}
    body |= {"prompt": dice.choice(TEXTS), "input": dice.choice(TEXTS), "max_tokens": 2}
    body["messages"] = [{"role": dice.choice(["user", "x"]), "content": dice.choice(TEXTS)}]
    for key in dice.sample(KEYS, dice.randrange(4)):
        body[key] = dice.choice(VALUES)
    return dice.choice(routes), json.dumps(body).encode()


def broken(dice, content):
    """Return the bytes of a body with some of them changed, cut, or repeated."""
    place = dice.randrange(len(content))
    kinds = [
        content,
        content[:place],
        content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :],
        content * 2,
    ]
    return dice.choice(kinds)


@pytest.mark.slow
def test_hostile_requests_and_clients_that_leave_do_no_harm(folder, runs, caplog):
    caplog.set_level(logging.DEBUG)
    dice, name = random.Random(5), runs["labels"].id
    headers = {"Authorization": f"Bearer {KEY}"}
    good = {"model": name, "input": ["a bright film"]}
    with (
        serving(folder, keys=[KEY]) as (address, _, batches),
        httpx.Client(base_url=address, headers=headers, timeout=60) as own,
    ):
        wanted = own.post("/v1/classify", json=good).json()["data"]
        for number in range(200):
            route, content = hostile(dice, [run.id for run in runs.values()])
            found = own.post(f"/v1/{route}", content=broken(dice, content))
            assert found.status_code < 500, (route, content, found.text)
            assert KEY not in found.text and str(folder) not in found.text
            if number % 20 == 0:
                assert own.post("/v1/classify", json=good).json()["data"] == wanted
        for number in range(50):
            body = {"model": runs["prefix"].id, "prompt": "Frank Venn", "stream": number % 2 == 0}
            body |= {"temperature": 3.0, "max_tokens": 60, "seed": number}
            with own.stream("POST", "/v1/completions", json=body, timeout=60) as response:
                if number % 2 == 0:
                    next(response.iter_bytes())
        until = time.monotonic() + 20
        while batches.waiting and time.monotonic() < until:
            time.sleep(0.05)
        assert not batches.waiting
        assert own.post("/v1/classify", json=good).json()["data"] == wanted
    assert "Traceback" not in caplog.text and KEY not in caplog.text


def test_no_answer_waits_for_an_acknowledgement():
    with _listening("127.0.0.1", 0) as own, socket.create_connection(own.getsockname()):
        connection, _ = own.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
def test_a_signal_lets_what_was_accepted_end(folder, runs, tmp_path):
    line = [sys.executable, "-m", "ptrun", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as own:
        address = own.stdout.readline().split()[-1]
        body = {"model": runs["prefix"].id, "prompt": "Frank Venn", "max_tokens": 100}
        body |= {"temperature": 3.0, "stream": True}
        with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            own.send_signal(signal.SIGTERM)
            rest = [text for text in lines if text]
        assert rest[-1] == "data: [DONE]"
        assert own.wait(30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        assert "Traceback" not in own.stderr.read()


def test_a_thousand_runs_stay_on_disk(folder, runs, tmp_path):
    for number in range(1000):
        place = tmp_path / f"run-{number:08}"
        shutil.copytree(runs["labels"].folder, place, copy_function=os.link)
    prompts = Prompts([tmp_path], [], most_bytes=1, watch=False)
    assert len(prompts.ids()) == 1000 and len(prompts.loaded) == 1
    for number in range(0, 1000, 50):
        prompts.get(f"{number:08}")
        assert len(prompts.loaded) == 1
    assert prompts.unloads == 19


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["nowhere"], "serve nowhere: no such folder"),
        (["{empty}"], "no finished run"),
        (["{runs}", "--key-file", "{empty}/none"], "cannot be read"),
        (["{runs}", "--key-file", "{short}"], "of 16 letters or more"),
    ],
)
def test_what_cannot_be_served_is_refused(folder, tmp_path, typed, said):
    places = {"empty": tmp_path / "empty", "runs": folder, "short": tmp_path / "short"}
    places["empty"].mkdir()
    places["short"].write_text("secret\n")
    with pytest.raises(UserError, match=said):
        main([one.format_map(places) for one in typed])
