"""Requests of real clients: each key is obeyed, or refused by its name.

`client_calls.json` has what six clients send, recorded with RUN and DIGITS in place of a run.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from ptrun.backbone.choosing import Decoding
from ptrun.errors import UserError
from ptrun.serve import reading
from ptrun.serve.batches import Batches, Texts
from ptrun.serve.requests import (
    HARMLESS,
    NEUTRAL,
    ChatRequest,
    CompletionRequest,
    InvalidRequest,
    RowsRequest,
    parsed,
)
from ptrun.serve.rows import WaitingRow, Wish
from ptrun.task import conversation
from ptrun.task.source import Row
from tests.serve.test_answers import checked

CALLS = json.loads(Path(__file__).with_name("client_calls.json").read_text(encoding="utf-8"))
KINDS = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/v1/classify": RowsRequest,
}
POSTS = [call for call in CALLS["calls"] if call["method"] == "POST" and call["path"] in KINDS]
CHAT = {"model": "a", "messages": [{"role": "user", "content": "b"}]}
WRITE = {"model": "a", "prompt": "b"}


def unread(kind, body):
    """Return the keys of a body that no answer depends on, and that are no listed ones."""
    return [
        key
        for key, value in body.items()
        if key not in kind.model_fields
        and key not in HARMLESS
        and value is not None
        and (key not in NEUTRAL or repr(NEUTRAL[key]).rstrip(".0") != repr(value).rstrip(".0"))
    ]


@pytest.mark.parametrize("call", POSTS, ids=lambda call: f"{call['client']}: {call['what']}")
def test_a_clients_key_is_obeyed_or_refused_by_name(call):
    kind, body = KINDS[call["path"]], call["body"]
    keys = unread(kind, body)
    try:
        parsed(kind, body)
    except InvalidRequest as error:
        assert error.key, str(error)
        top = error.key.partition("[")[0].partition(".")[0]
        read = ("messages", "prompt", "stop", "input", "tools", "tool_choice")
        assert top in body and (top in keys or top in read)
        assert error.key in str(error)
    else:
        assert keys == []


def test_all_six_clients_are_there():
    names = {call["client"].split()[0] for call in CALLS["calls"]}
    assert names == {
        "openai", "langchain-openai", "instructor", "litellm", "llm", "pydantic-ai",
    }  # fmt: skip
    assert len(POSTS) > 100


@pytest.mark.parametrize(
    "key", ["best_off", "reasoning_effort", "verbosity", "guided_json", "stopp"]
)
def test_a_key_that_is_not_read_is_refused(key):
    for kind, body in ((ChatRequest, CHAT), (CompletionRequest, WRITE)):
        with pytest.raises(InvalidRequest, match=rf"^{key}: not read by this server"):
            parsed(kind, {**body, key: 1})


def test_a_penalty_of_one_takes_the_place_of_the_run_s_own():
    wish = parsed(CompletionRequest, {**WRITE, "repetition_penalty": 1}).wish
    usual = Decoding(repetition_penalty=1.3)
    assert reading.decoding_of(usual, wish, 9).repetition_penalty == 1
    assert reading.decoding_of(usual, Wish(), 9).repetition_penalty == 1.3


def test_a_row_that_has_its_answer_is_not_computed_again(monkeypatch):
    batches = Batches.__new__(Batches)  # without its thread
    batches.rows, batches.batches, batches.budget = 0, 0, 100
    batches.prompts, batches.texts = SimpleNamespace(shared=None), Texts(None)
    jobs, tried = [WaitingRow("run", {}), WaitingRow("run", {})], []

    def step(rows, _):
        tried.append(list(rows))
        rows[0].done.set_result("answered")
        if len(rows) > 1:
            raise RuntimeError("the second row fails")

    monkeypatch.setattr(batches, "_step", step)
    batches._compute(jobs)
    assert tried == [jobs, jobs[1:]] and all(job.done.result() for job in jobs)


@pytest.mark.parametrize("key", NEUTRAL)
def test_what_asks_for_what_every_answer_is_passes_and_more_does_not(key):
    parsed(ChatRequest, {**CHAT, key: NEUTRAL[key]})
    for other in (True, 2, 0.5, "required", [{"type": "function"}], {"type": "json_object"}):
        with pytest.raises(InvalidRequest, match=f"^{key}"):
            parsed(ChatRequest, {**CHAT, key: other})


@pytest.mark.parametrize("key", [*NEUTRAL, *HARMLESS, "temperature", "max_tokens", "stop", "seed"])
def test_a_null_is_an_absent_key(key):
    assert parsed(ChatRequest, {**CHAT, key: None}).wish == parsed(ChatRequest, CHAT).wish


def test_what_chooses_tokens_is_wished_as_it_is_typed():
    asked = {"top_p": 0, "top_k": -1, "min_p": 0.1, "presence_penalty": -2, "seed": -3,
             "frequency_penalty": 0, "logit_bias": {"5": -100, "0": 2}}  # fmt: skip
    for kind, body in ((ChatRequest, CHAT), (CompletionRequest, WRITE)):
        wish = parsed(kind, {**body, **asked}).wish
        assert wish == Wish(
            top_p=1e-6, top_k=0, min_p=0.1, presence_penalty=-2.0, frequency_penalty=0.0, seed=-3,
            logit_bias=((5, -100.0), (0, 2.0)),
        )  # fmt: skip
        assert parsed(kind, {**body, "logit_bias": {}, "top_k": 0}).wish == Wish(top_k=0)


def test_whole_numbers_are_numbers():
    first = parsed(CompletionRequest, {**WRITE, "temperature": 1, "max_tokens": 5, "seed": 3})
    floats = {"temperature": 1.0, "max_tokens": 5.0, "seed": 3.0}
    second = parsed(CompletionRequest, {**WRITE, **floats})
    assert first.wish == second.wish and type(first.wish.temperature) is float
    assert type(second.wish.max_tokens) is int
    assert parsed(CompletionRequest, {**WRITE, "temperature": 1e-9}).wish.temperature == 0.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", 1e400), ("temperature", -0.1), ("temperature", "1"), ("temperature", 1e9),
        ("max_tokens", 10**9), ("max_tokens", 2.5), ("max_tokens", True), ("top_p", 1.1),
        ("top_k", -2), ("top_k", 1.5), ("min_p", 1.1), ("min_p", -0.1), ("n", 0), ("n", 9),
        ("n", True), ("presence_penalty", 2.1), ("frequency_penalty", -2.1),
        ("logit_bias", {"a": 1}), ("logit_bias", {"01": 1}), ("logit_bias", {"-1": 1}),
        ("logit_bias", {"1": 101}), ("logit_bias", {"1": None}), ("logit_bias", []),
        ("logit_bias", {"9" * 5000: 1}), ("logit_bias", {str(number): 1 for number in range(1025)}),
        ("seed", 2**63), ("stop", [""]), ("stop", ["a"] * 9), ("stop", "a" * 201),
        ("stream", "false"), ("stream", 1), ("stream_options", {"include_usage": 1}),
        ("stream_options", {"other": True}), ("model", 3), ("model", ""),
    ],
)  # fmt: skip
def test_extremes_and_other_types_are_refused_with_their_value(key, value):
    with pytest.raises(InvalidRequest) as told:
        parsed(CompletionRequest, {**WRITE, key: value})
    assert told.value.key.startswith(key) and key in str(told.value)


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "image_url"),
        ({"role": "user", "content": None}, r"messages\[0\].*content is missing"),
        ({"role": "user", "content": "a", "weight": 1}, r"messages\[0\].weight: not read"),
        ({"role": "function", "content": "a"}, "messages.*role is 'function'"),
        ({"role": "user", "content": "\ud800"}, "unpaired surrogate"),
    ],
)
def test_a_turn_that_is_not_read_is_refused_by_its_place(turn, said):
    with pytest.raises(InvalidRequest, match=said):
        parsed(ChatRequest, {"model": "a", "messages": [turn, CHAT["messages"][0]]})


def test_turns_that_a_client_sends_back_are_read():
    echo = {"role": "assistant", "content": "c", "refusal": None, "annotations": [], "audio": None,
            "function_call": None, "tool_calls": None}  # fmt: skip
    first = {"role": "developer", "content": [{"type": "text", "text": "d"}]}
    asked = parsed(ChatRequest, {"model": "a", "messages": [first, echo, *CHAT["messages"]]})
    talk = conversation.asked(Row("row 1", asked.rows[0]), "messages")
    assert talk.turns == [
        {"role": "system", "content": "d"}, {"role": "assistant", "content": "c"},
        {"role": "user", "content": "b"},
    ]  # fmt: skip


FUNCTION = {"name": "add", "arguments": {"a": 3}}
TOOL = {"type": "function", "function": {"name": "add"}}


def test_calls_tools_and_names_of_a_template_are_read():
    called = [
        *CHAT["messages"],
        {"role": "assistant", "content": None, "reasoning_content": "c", "tool_calls": [
            {"id": "x", "type": "function", "function": FUNCTION | {"arguments": '{"a": 3}'}}]},
        {"role": "tool", "tool_call_id": "x", "name": "add", "content": "7"},
    ]  # fmt: skip
    beside = {"tools": [TOOL], "chat_template_kwargs": {"formal": True}}
    asked = parsed(ChatRequest, {**CHAT, "messages": called, **beside, "tool_choice": "none"})
    talk = conversation.asked(Row("row 1", asked.rows[0]), "messages")
    assert talk.variables == {"tools": [TOOL], "formal": True}
    assert talk.turns[1]["tool_calls"][0]["function"] == FUNCTION
    assert talk.turns[2]["tool_call_id"] == "x"
    assert asked.structure is None
    for choice, required in (({}, False), ("auto", False), ("required", True)):
        more = {"tool_choice": choice} if choice else {}
        structure = parsed(ChatRequest, {**CHAT, **beside, **more}).structure
        assert (structure.tools[0][0], structure.required) == ("add", required)
    with pytest.raises(InvalidRequest, match=r"^tool_choice: 'required'; expected"):
        parsed(ChatRequest, {**CHAT, "tool_choice": "required"})


def test_calls_of_clients_get_an_answer_or_a_reason_and_no_500(server, runs):
    name, document = runs["lora"].id, httpx.get(f"{server}/openapi.json").json()
    for call in POSTS:
        text = json.dumps(call["body"]).replace("DIGITS", name[-8:]).replace("RUN", name)
        body = json.loads(text)
        found = httpx.post(server + call["path"], json={**body, "max_tokens": 2}, timeout=60)
        assert found.status_code in (200, 400, 404), (call, found.text)
        checked(document, found)
        assert (found.status_code == 404) == ("unknown model" in call["what"])
        if found.status_code != 200:
            error = found.json()["error"]
            assert error["message"] and {"type", "param", "code"} <= error.keys()


def test_a_text_that_may_be_empty_is_no_reason_to_refuse_a_prompt():
    task = SimpleNamespace(pvps={"plain": {}}, answer="text", optional=["input"])
    task.reads = ["instruction", "input"]
    loaded = SimpleNamespace(id="run", run=SimpleNamespace(task=task))
    assert reading._fields(loaded, {"prompt": "Add."}) == {"instruction": "Add."}
    task.optional = ()
    with pytest.raises(UserError, match="reads the fields instruction, input, so a prompt"):
        reading._fields(loaded, {"prompt": "Add."})
