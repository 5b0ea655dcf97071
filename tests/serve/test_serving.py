"""`ptrun serve`: what clients get is what the runs answer, and hostile requests do no harm."""

import gc
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import httpx
import openai
import pytest

import ptrun
from ptrun.errors import UserError
from ptrun.serve import batches as serving_texts
from ptrun.serve import reading
from ptrun.serve.command import _listening, main
from ptrun.serve.prompts import Prompts
from ptrun.serve.rows import WaitingRow
from ptrun.serve.serving import Limits
from tests.predicting.test_together import rows_of
from tests.serve.conftest import ROWS, renamed, serving

KEY = "a-secret-of-many-letters"
BROWSER = {"Accept": "text/html,*/*"}


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
    turns = [{"role": "user", "content": prompt}]
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


LONG = {"max_tokens": 90}  # longer than what must fit when a text joins
SETTINGS = [
    LONG,
    {**LONG, "temperature": 1.5, "seed": 4},
    {**LONG, "temperature": 0.9, "seed": 5, "top_p": 0.9, "repetition_penalty": 1.3},
    {"max_tokens": 3, "temperature": 1.5, "seed": 6},
    {**LONG, "stop": [" the", "a s"]},
    {**LONG, "repetition_penalty": 1.2},
]


@pytest.mark.parametrize("budget", [4096, 400])
def test_texts_that_come_and_go_are_written_as_alone(server, folder, runs, monkeypatch, budget):
    """Each token takes its time, so that rows join and leave in the middle of the others."""
    names, prompts = ("prefix", "lora", "cartridge"), rows_of(runs["lora"])
    jobs = [(names[i % 3], prompts[i % 4]["facts"], SETTINGS[i % 6]) for i in range(12)]

    def written(address, name, prompt, settings):
        made = asked(address, "completions", model=runs[name].id, prompt=prompt, **settings)
        return made.json()["choices"][0]["text"]

    alone = [written(server, *job) for job in jobs]
    seen, waits = [], []
    monkeypatch.setattr(serving_texts, "choose", _slow(serving_texts.choose, 0.01, seen))
    with serving(folder, budget=budget) as (address, *_), ThreadPoolExecutor(12) as pool:
        for job in jobs:
            waits.append(pool.submit(written, address, *job))
            time.sleep(0.02)
        leaves = {"model": runs["lora"].id, "prompt": "Frank", "stream": True, **LONG}
        with httpx.stream("POST", f"{address}/v1/completions", json=leaves) as response:
            next(response.iter_lines())
        assert [wait.result() for wait in waits] == alone
    assert len(set(seen)) > 2


@pytest.mark.parametrize(
    "backbone", ["pocket_t5", pytest.param("pocket_glm", marks=pytest.mark.slow)]
)
def test_texts_beside_an_encoder_or_in_a_blank_are_written_as_alone(
    tmp_path, monkeypatch, backbone
):
    common = [f"backbone={backbone}", ROWS, "train.max_steps=3", "task=pocket_writing"]
    lines = (["method=lora"], ["method=ptuning_v2", "method.length=4"])
    runs = [ptrun.run(*line, *common, "train.lr=0.05", f"outputs={tmp_path}") for line in lines]
    jobs = [(run, row["facts"]) for row in rows_of(runs[0])[:2] for run in runs]

    def written(address, run, prompt):
        own = {"model": run.id, "prompt": prompt, "max_tokens": 80, "temperature": 2, "seed": 5}
        return asked(address, "completions", **own).json()["choices"][0]["text"]

    with serving(runs[0].folder.parent) as (address, *_), ThreadPoolExecutor(6) as pool:
        alone = [written(address, *job) for job in jobs]
        monkeypatch.setattr(serving_texts, "choose", _slow(serving_texts.choose, 0.01))
        waits = []
        for job in jobs:
            waits.append(pool.submit(written, address, *job))
            time.sleep(0.05)
        assert [wait.result() for wait in waits] == alone


@pytest.mark.parametrize("body", [{"stream": True}, {"prompt": ["Frank Venn"] * 3}])
def test_a_client_that_left_frees_its_place(folder, runs, monkeypatch, body):
    monkeypatch.setattr(serving_texts, "choose", _slow(serving_texts.choose, 0.1))
    with serving(folder, longest=10**6) as (address, _, batches):
        own = {"model": runs["prefix"].id, "prompt": "Frank Venn", "max_tokens": 60}
        own |= {"temperature": 3.0, **body}
        with suppress(httpx.ReadTimeout), httpx.stream(
            "POST", f"{address}/v1/completions", json=own, timeout=0.5
        ) as response:  # fmt: skip
            next(response.iter_lines())
        labelled = asked(address, "classify", model=runs["labels"].id, input="a film")
        assert labelled.status_code == 200
        until = time.monotonic() + 10
        while batches.texts.jobs and time.monotonic() < until:
            time.sleep(0.05)
        rows = len(body.get("prompt", [0]))
        assert not batches.waiting and 0 < batches.written < 30 * rows


def _slow(call, seconds, seen=None):
    def slowly(*given):
        time.sleep(seconds)
        if seen is not None:
            seen.append(len(given[1]))
        return call(*given)

    return slowly


# Requests that are refused.

GOOD = {"prompt": "a"}
BAD = [
    ("completions", {"prompt": 3}, "prompt is 3; expected a text"),
    ("completions", {"prompt": []}, "expected a text"),
    ("completions", {**GOOD, "n": 9}, "n is 9; input should be less than or equal to 8"),
    ("completions", {**GOOD, "n": 2, "best_of": 3}, "best_of: every text is returned"),
    ("completions", {"prompt": ["a"] * 33, "n": 8}, "33 prompts with n=8; at most 256 texts"),
    ("completions", {**GOOD, "stop": [1]}, "stop[0] is 1; expected a text"),
    ("chat/completions", {"messages": []}, "messages is []; expected one or more"),
    ("chat/completions", {"messages": [3]}, "messages[0] is 3; expected an object"),
    ("classify", {"input": []}, "input has 0 rows"),
    ("classify", {"input": [["a"]]}, "input[0] is ['a']; expected a text"),
    ("classify", {"input": ["a"] * 300}, "input has 300 rows"),
    ("predict", {"input": [{"x": "a"}]}, "no field 'sentence'"),
    ("classify", {"input": [{"messages": "x"}]}, "no field 'sentence'"),
    ("classify", {"input": {}}, "no field 'sentence'"),
    ("classify", {"input": [{"prompt": 3}]}, "row 1"),
]


@pytest.mark.parametrize(("route", "body", "said"), BAD)
def test_a_wrong_request_gets_400_and_the_reason(server, runs, route, body, said):
    found = asked(server, route, model=runs["labels"].id, **body)
    assert found.status_code == 400 and said in found.json()["error"]["message"], found.text


def test_several_wrong_rows_of_a_request_leave_no_traceback(folder, runs, caplog):
    with serving(folder) as (address, *_):
        rows = [{"x": "a"}, {}, {"x": "b"}]
        found = asked(address, "predict", model=runs["labels"].id, input=rows)
        assert found.status_code == 400
        gc.collect()
    assert "never retrieved" not in caplog.text


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


def test_the_start_of_an_id_names_a_run_if_no_other_has_it(server, runs):
    found = asked(server, "classify", model="prompt_tuning", input="a").json()
    assert found["model"] == runs["labels"].id
    several = asked(server, "classify", model="ptuning_v2", input="a")
    assert several.status_code == 404
    told = several.json()["error"]["message"]
    assert "2 runs, such as" in told and runs["prefix"].id in told


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


def test_every_route_but_health_needs_the_key(folder, runs, caplog):
    caplog.set_level(logging.DEBUG)
    with serving(folder, keys=["another-key-of-many-letters", KEY]) as (address, *_):
        for route in ("health", ""):
            assert httpx.get(f"{address}/{route}", headers=BROWSER).status_code == 200
        for route in ("metrics", "v1/models", "docs", "openapi.json", "nothing"):
            found = httpx.get(f"{address}/{route}")
            assert found.status_code == 401 and KEY not in found.text
        wrongs = ["Bearer", f"Basic {KEY}", f"Bearer {KEY}x", f"Token {KEY}", KEY[:3]]
        for wrong in wrongs:
            headers = {"Authorization": wrong}
            assert httpx.get(f"{address}/v1/models", headers=headers).status_code == 401
        assert len(list(client(address, KEY).models.list())) == len(runs)
    assert KEY not in caplog.text


def test_metrics_count_requests_and_rows(folder, runs):
    with serving(folder) as (address, *_):
        asked(address, "classify", model=runs["labels"].id, input=["a", "b"])
        text = httpx.get(f"{address}/metrics").text
    assert 'ptrun_requests_total{route="/v1/classify",status="200"} 1.0' in text
    assert "ptrun_rows_total 2.0" in text and "ptrun_waiting_rows 0.0" in text


# Runs that come, go, do not fit, or are too many for memory.


def test_new_and_removed_runs_are_noticed(copied, runs, tmp_path, monkeypatch):
    monkeypatch.setattr("ptrun.serve.prompts._LOOK_EVERY", 0.0)
    name = runs["topics"].id
    shutil.move(copied / name, tmp_path / "aside")
    with serving(copied) as (address, *_):
        assert asked(address, "predict", model=name, input="a").status_code == 404
        shutil.move(tmp_path / "aside", copied / name)
        assert asked(address, "predict", model=name, input="a").status_code == 200
        shutil.rmtree(copied / name)
        assert asked(address, "predict", model=name, input="a").status_code == 404


@pytest.mark.parametrize("file", ["prompt.safetensors", "run.yaml"])
def test_a_damaged_run_is_refused_by_name_and_the_others_are_served(copied, runs, caplog, file):
    name = runs["topics"].id
    place = copied / name / file
    place.write_bytes(b"names: [" if file == "run.yaml" else place.read_bytes()[:-7])
    with serving(copied) as (address, *_):
        found = asked(address, "predict", model=name, input="a")
        assert found.status_code == 400 and name in found.text and str(copied) not in found.text
        assert asked(address, "classify", model=runs["labels"].id, input="a").status_code == 200
    assert str(copied / name) in caplog.text


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


# One row's fault is that row's alone.


def poisoned(monkeypatch, stage, batches):
    """Make a stage fail for the rows whose text has the word poison."""

    def is_bad(job):
        return "poison" in str(job.row)

    places = {
        "read": (reading, "_fields", lambda given: [SimpleNamespace(row=given[1])]),
        "inputs": (serving_texts, "joined", lambda given: given[0]),
        "text": (WaitingRow, "text", lambda given: given[:1]),
        "give": (WaitingRow, "give", lambda given: given[:1]),
        "compute": (batches, "_step", lambda given: given[0]),
        "step": (serving_texts.Texts, "step", lambda given: given[0].jobs),
        "choose": (serving_texts, "choose", lambda given: given[1]),
        "told": (WaitingRow, "tell", lambda given: given[:1]),
    }
    module, name, rows_of_call = places[stage]
    call = getattr(module, name)

    def fails(*given, **more):
        bad = [job for job in rows_of_call(given) if is_bad(job) and not job.done.done()]
        if stage == "choose":  # after all rows have drawn
            found = call(*given, **more)
        if bad and stage != "told":
            raise RuntimeError("poison")
        for job in bad:
            job.told = lambda _: 1 / 0
        return found if stage == "choose" else call(*given, **more)

    monkeypatch.setattr(module, name, fails)


STAGES = ["read", "inputs", "text", "give", "told", "compute", "choose", "step"]


KINDS = {
    "completions": ("lora", "facts", "prompt", "choices"),
    "classify": ("labels", "sentence", "input", "data"),
}
PLACES = [("completions", stage) for stage in STAGES]
PLACES += [("classify", stage) for stage in ("read", "compute", "give")]


@pytest.mark.parametrize(("route", "stage"), PLACES)
def test_one_of_eight_rows_that_fails_fails_alone(server, folder, runs, monkeypatch, route, stage):
    run, field, key, answer = KINDS[route]
    texts = [row[field] for row in rows_of(runs[run])][:7]
    heat = float(stage in STAGES[::2])  # drawn in four stages, the likeliest in the others
    written = {"max_tokens": 5, "temperature": heat, "seed": 3} if route == "completions" else {}

    def told(address, text):
        return asked(address, route, model=runs[run].id, **written, **{key: text})

    alone = [told(server, text).json()[answer] for text in texts]
    with serving(folder, wait=0.2) as (address, _, batches):
        poisoned(monkeypatch, stage, batches)
        with ThreadPoolExecutor(8) as pool:
            waits = [pool.submit(told, address, t) for t in [*texts[:3], "poison", *texts[3:]]]
            found = [wait.result() for wait in waits]
        monkeypatch.undo()
    assert found.pop(3).status_code == 500
    assert [one.json()[answer] for one in found] == alone


# Long texts, and stop texts that span tokens.


def test_a_prompt_that_does_not_fit_is_refused_and_a_text_ends_at_the_last_position(server, runs):
    name = runs["lora"].id
    for body in (
        {"prompt": "the old boat " * 2000},
        {"messages": [{"role": "user", "content": "the old boat " * 2000}]},
    ):
        route = "chat/completions" if "messages" in body else "completions"
        for stream in (False, True):
            found = asked(server, route, model=name, stream=stream, **body)
            error = found.json()["error"]
            assert found.status_code == 400 and error["code"] == "context_length_exceeded"
            assert "256" in error["message"]
    body = {"model": name, "prompt": "the old boat " * 40, "max_tokens": 1000, "temperature": 0.0}
    found = asked(server, "completions", **body)
    usage = found.json()["usage"]
    assert found.status_code == 200 and usage["total_tokens"] <= 256
    if found.json()["choices"][0]["finish_reason"] == "length":
        assert usage["total_tokens"] == 256


def test_a_row_that_is_too_long_is_shortened_as_in_training_and_says_so(server, runs):
    name, long = runs["labels"].id, "a bright film " * 900
    short, cut = asked(server, "classify", model=name, input=["a bright film", long]).json()["data"]
    assert "shortened" not in short and cut["shortened"] is True
    (wanted,) = runs["labels"].predict([{"sentence": long}], probabilities=True)
    assert cut["label"] == wanted["prediction"]
    rows = asked(server, "predict", model=name, input=[long]).json()["data"]
    assert rows[0]["shortened"] is True


def test_a_stream_holds_back_what_may_be_a_stop_text(server, runs):
    own, name = client(server), runs["lora"].id
    prompt = rows_of(runs["lora"])[2]["facts"]
    common = {"model": name, "prompt": prompt, "max_tokens": 30}
    whole = own.completions.create(**common).choices[0].text
    for start in range(1, max(2, len(whole) - 8), 3):
        stop = whole[start : start + 7]
        if not stop.strip() or stop != stop.strip():
            continue
        at_once = own.completions.create(**common, stop=[stop]).choices[0].text
        pieces = own.completions.create(**common, stop=[stop], stream=True)
        assert "".join(piece.choices[0].text for piece in pieces) == at_once
        assert stop not in at_once


def test_a_stream_has_its_counts_where_a_client_asks_for_them(server, runs):
    own, name = client(server), runs["lora"].id
    asked_for = {"model": name[-8:], "prompt": "Frank Venn", "max_tokens": 4}
    whole = own.completions.create(**asked_for)
    *pieces, last = own.completions.create(
        **asked_for, stream=True, stream_options={"include_usage": True}
    )
    assert last.choices == [] and last.usage == whole.usage
    assert {piece.model for piece in [*pieces, last]} == {name} and pieces[-1].usage is None
    assert own.models.retrieve(name[-8:]).id == name
    assert all(model.created > 10**9 for model in own.models.list())


def test_turns_that_have_no_effect_are_refused(server, runs):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Frank Venn"}]
    found = asked(server, "chat/completions", model=runs["lora"].id, messages=turns)
    assert found.status_code == 400 and "(system) would have no effect" in found.text
    assert asked(server, "chat/completions", model=runs["lora"].id, messages=turns[1:]).is_success


# Folders of others, connections that do not end, and signals.


def test_what_is_strange_in_a_watched_folder_costs_a_warning(copied, runs, monkeypatch, caplog):
    monkeypatch.setattr("ptrun.serve.prompts._LOOK_EVERY", 0.0)
    name = runs["labels"].id
    with serving(copied) as (address, *_):
        for strange in ("a\nb", "\x1b[31mred", "é" * 40, "x" * 250, os.fsdecode(b"\xff\xfe")):
            (copied / strange).mkdir()
            shutil.copy(copied / name / "result.json", copied / strange)
            shutil.copy(copied / name / "prompt.safetensors", copied / strange)
        for content in (b"", b"[" * 10**5, b'{"run_id": 3}', b"\xff" * 100):
            place = copied / f"c{len(content)}-{content[:1].hex()}"
            place.mkdir()
            (place / "result.json").write_bytes(content)
            (place / "prompt.safetensors").write_bytes(content)
        (copied / "loop").symlink_to(copied)
        deep = copied
        for _ in range(30):
            deep = deep / "d"
        deep.mkdir(parents=True)
        os.mkfifo(copied / "d" / "result.json")
        (copied / "huge").mkdir()
        with (copied / "huge" / "result.json").open("wb") as file:
            file.truncate(5 * 10**9)
        found = asked(address, "classify", model=name, input="a")
        assert found.status_code == 200
        listed = httpx.get(f"{address}/v1/models").json()["data"]
        assert {own.id for own in runs.values()} <= {one["id"] for one in listed}
        assert all(one["id"].isprintable() and one["id"].isascii() for one in listed)
    assert not any("\x1b" in line or "\na" in line for line in caplog.messages)


def test_a_folder_that_holds_another_run_is_left_out(copied, runs, caplog):
    labels, topics = (copied / runs[name].id for name in ("labels", "topics"))
    shutil.rmtree(labels)
    shutil.copytree(topics, labels)
    with serving(copied) as (address, *_):
        found = asked(address, "predict", model=labels.name, input="a")
        assert found.status_code == 404
        assert "holding another run than its name says" in caplog.text


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_folder_of_the_same_name_hides_no_run(copied, runs, content):
    name = runs["labels"].id
    shutil.copytree(copied / runs["topics"].id, copied / "AAA" / name)
    if content is not None:
        (copied / "AAA" / name / "result.json").write_bytes(content)
    with serving(copied) as (address, *_):
        wanted = runs["labels"].predict([{"sentence": "a film"}])
        found = asked(address, "classify", model=name, input="a film").json()["data"]
        assert found[0]["label"] == wanted[0]["prediction"]


def connected(address):
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


@pytest.mark.parametrize("content", [b"", b"GET", b"POST /v1/classify HTTP/1.1\r\nHost: 127.0.0.1"])
def test_a_half_sent_request_ends_its_connection(folder, monkeypatch, content):
    monkeypatch.setattr("ptrun.serve.connections.SECONDS", 0.3)
    with serving(folder) as (address, *_):
        with connected(address) as own:
            own.sendall(content)
            assert own.recv(1000) == b""
        with connected(address) as own:  # kept alive
            own.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" in own.recv(10_000)
            own.sendall(content or b"G")
            while own.recv(1000):
                pass


def test_a_half_sent_body_gets_an_answer(folder, runs):
    head = b"POST /v1/classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{"
    with serving(folder, limits=Limits(seconds=0.5)) as (address, *_), connected(address) as own:
        own.sendall(head)
        assert b"408" in own.recv(10_000)


def test_a_client_that_leaves_within_its_body_costs_one_line_at_most(folder, runs, capfd):
    head = b"POST /v1/classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{"
    with serving(folder) as (address, *_):
        with connected(address) as own:
            own.sendall(head)
            time.sleep(0.2)
        assert asked(address, "classify", model=runs["labels"].id, input="a").is_success
        left = 'route="/v1/classify",status="499"'
        until = time.monotonic() + 10
        while left not in httpx.get(f"{address}/metrics").text and time.monotonic() < until:
            time.sleep(0.05)
        assert left in httpx.get(f"{address}/metrics").text
    assert "Traceback" not in capfd.readouterr().err


def closed(connection):
    try:
        return connection.recv(10) == b""
    except ConnectionResetError:
        return True


def test_connections_beyond_the_descriptors_are_closed(folder, runs, monkeypatch):
    monkeypatch.setattr("ptrun.serve.connections.resource.getrlimit", lambda _: (50, 50))
    with serving(folder) as (address, *_):
        held = [connected(address) for _ in range(8)]
        assert asked(address, "classify", model=runs["labels"].id, input="a").is_success
        more = [connected(address) for _ in range(6)]
        ended = 0
        for own in more:
            own.settimeout(1)
            with suppress(TimeoutError):  # not closed
                ended += closed(own)
        assert ended >= 3
        for own in (*held, *more):
            own.close()


# Two hundred hostile requests, fifty clients that leave, and a signal.

TEXTS = ["", "a", "\x00", "\ud7ff", "😀" * 50, "a " * 3000, "<script>", "../../etc/passwd"]
TEXTS += ["{mask}"]
VALUES = [None, True, -1, 0, 10**30, 1e308, "a", [], {}, [[[]]], {"a": {}}, *TEXTS]
KEYS = ["model", "prompt", "messages", "input", "max_tokens", "temperature", "stop", "seed"]
KEYS += ["stream"]
LOOP = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}}, "$ref": "#/$defs/a"}
SCHEMAS = [{}, False, LOOP, {"enum": [f"v{i}" for i in range(3000)]}, {"type": "bogus"}]
SCHEMAS += [{"type": "string", "pattern": "^(a+)+(["}, {"type": "string", "maxLength": 10**9}]
CALLED = [{"type": "function", "function": {"name": "f", "parameters": one}} for one in SCHEMAS]
WIDE = {
    "prompt": [[5], [[5, 6], [2799]], [2800], [-1], [[]], [5] * 300, [[5], "a"], [2.0]],
    "n": [2, 8, 9, 2.0], "best_of": [2], "echo": [True], "logprobs": [True, 0, 5, 6],
    "top_logprobs": [0, 20, 21], "stream_options": [{"include_usage": True}],
    "logit_bias": [{"5": 100}, {"x": 1}, {str(i): -100 for i in range(2800)}],
    "response_format": [{"type": "json_object"}, {"type": "json_schema"}, *(
        {"type": "json_schema", "json_schema": {"name": "a", "schema": one}} for one in SCHEMAS
    )],
    "tools": [CALLED[:1], CALLED, CALLED[:1] * 2, [{}]],
    "tool_choice": ["auto", "none", "required", {"type": "function", "function": {"name": "f"}}],
    "presence_penalty": [2, -2, 3], "frequency_penalty": [2], "min_p": [0.5], "top_k": [1, -1],
}  # fmt: skip


def hostile(dice, names):
    """Return the route and the body of a hostile request, many of which are answered."""
    turns = [{"role": "user", "content": dice.choice(TEXTS)}]
    route, own = dice.choice(
        [
            ("completions", {"prompt": dice.choice(TEXTS), "max_tokens": 2}),
            ("chat/completions", {"messages": turns, "max_tokens": 2}),
            ("classify", {"input": dice.choice(TEXTS)}),
            ("predict", {"input": [dice.choice(TEXTS)]}),
        ]
    )
    body = {"model": dice.choice([*names * 3, "x", "../x", None]), **own}
    for key in dice.sample(KEYS, max(0, dice.randrange(-2, 3))):
        body[key] = dice.choice(VALUES)
    for key in dice.sample(sorted(WIDE), dice.randrange(4) if "max_tokens" in body else 0):
        body[key] = dice.choice([dice.choice(VALUES), *WIDE[key]])
    return route, json.dumps(body).encode()


def broken(dice, content):
    """Return the bytes of a body with some of them changed, cut, or repeated."""
    place = dice.randrange(len(content))
    changed = content[:place] + bytes([dice.randrange(256)]) + content[place + 1 :]
    return dice.choice([content] * 3 + [content[:place], changed, content * 2])


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
        answered = 0
        for number in range(200):
            route, content = hostile(dice, [run.id for run in runs.values()])
            found = own.post(f"/v1/{route}", content=broken(dice, content))
            assert found.status_code < 500, (route, content, found.text)
            answered += found.status_code == 200
            assert KEY not in found.text and str(folder) not in found.text
            if number % 20 == 0:
                assert own.post("/v1/classify", json=good).json()["data"] == wanted
        assert answered > 10
        for number in range(50):
            body = {"model": runs["prefix"].id, "prompt": "Frank Venn", "stream": number % 2 == 0}
            body |= {"temperature": 3.0, "max_tokens": 60, "seed": number, "n": 1 + number % 8}
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
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_what_was_accepted_end(folder, runs, number):
    line = [sys.executable, "-m", "ptrun", "serve", str(folder), "--port", "0"]
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores one, and a process inherits it
    try:
        started = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(number, before)
    with started as own:
        address = own.stdout.readline().split()[-1]
        body = {"model": runs["prefix"].id, "prompt": "Frank Venn", "max_tokens": 100}
        body |= {"temperature": 3.0, "stream": True}
        with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            own.send_signal(number)
            rest = [text for text in lines if text]
        assert rest[-1] == "data: [DONE]"
        assert own.wait(30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
        assert "Traceback" not in own.stderr.read()


@pytest.mark.slow
def test_runs_beyond_memory_stay_on_disk(folder, runs, tmp_path):
    for number in range(200):
        place = tmp_path / f"run-{number:08}"
        renamed(runs["labels"].folder, place, os.link)
    prompts = Prompts([tmp_path], [], most_bytes=1, watch=False)
    assert len(prompts.ids()) == 200 and len(prompts.loaded) == 1
    for number in range(0, 200, 10):
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
