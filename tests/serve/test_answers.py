"""Answers have the forms of OpenAI's clients, and those that the OpenAPI document says."""

import json
from pathlib import Path

import httpx
import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from transformers import AutoTokenizer

import ptrun
from ptrun.serve import batches as serving_texts
from ptrun.serve.answers import token_text
from tests.predicting.test_together import rows_of
from tests.serve.conftest import serving

SHIPPED = Path(ptrun.__file__).parent / "pocket" / "models" / "pocket_gpt2"
KINDS = {"object": dict, "array": list, "string": str, "integer": int, "null": type(None)}


def fits(value, schema, schemas):
    """Return whether a value has the form of a schema, and nothing beside it."""
    if "$ref" in schema:
        return fits(value, schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return any(fits(value, one, schemas) for one in schema["anyOf"])
    if value not in schema.get("enum", [schema.get("const", value)]):
        return False
    kind = KINDS.get(schema.get("type"), (float, int) if "type" in schema else object)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        return False
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        return {*schema.get("required", ())} <= value.keys() <= known.keys() and all(
            fits(value[key], known[key], schemas) for key in value
        )
    if isinstance(value, dict) and isinstance(more := schema.get("additionalProperties"), dict):
        return all(fits(own, more, schemas) for own in value.values())
    return not isinstance(value, list) or all(
        fits(own, schema.get("items", {}), schemas) for own in value
    )


@pytest.fixture(scope="module")
def document(server):
    return httpx.get(f"{server}/openapi.json").json()


def pieces_of(text):
    """Return the pieces of a stream, which ends as OpenAI's."""
    events = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


def checked(document, response):
    """Return what a route answers, in the form that the document says."""
    path, method = response.url.path, response.request.method.lower()
    path = "/v1/models/{name}" if path.startswith("/v1/models/") else path
    said = document["paths"][path][method]["responses"][str(response.status_code)]["content"]
    kind = response.headers["content-type"].partition(";")[0]
    stream = kind == "text/event-stream"
    contents = pieces_of(response.text) if stream else [response.json()]
    schema = said[kind].get("schema")
    if stream:
        schema = said[kind]["itemSchema"]["properties"]["data"]["anyOf"][0]["contentSchema"]
    for content in contents:
        assert fits(content, schema, document["components"]["schemas"]), content
    return contents if stream else contents[0]


TURNS = [{"role": "user", "content": "Frank Venn"}]
WRITE = {"prompt": "Frank Venn", "max_tokens": 6}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    "more",
    [{}, {"n": 3, "temperature": 2, "seed": 3}, {"stop": "a"}, {"logprobs": 2, "n": 2}],
)
@pytest.mark.parametrize("streams", [{}, {"stream": True}, USAGE])
def test_texts_have_the_forms_of_the_document_and_of_openai(server, runs, document, more, streams):
    for path, body, whole, piece in (
        ("completions", WRITE, Completion, Completion),
        ("chat/completions", {"messages": TURNS, "max_tokens": 6}, ChatCompletion,
         ChatCompletionChunk),
    ):  # fmt: skip
        asked = {"model": runs["lora"].id, **body, **more, **streams}
        if "logprobs" in more and "messages" in body:
            asked |= {"logprobs": True, "top_logprobs": more["logprobs"]}
        content = checked(document, httpx.post(f"{server}/v1/{path}", json=asked, timeout=60))
        if not streams:
            whole.model_validate_json(json.dumps(content), strict=True)
            assert [choice["index"] for choice in content["choices"]] == [*range(asked.get("n", 1))]
            continue
        assert not streams.get("stream_options") or content[-1]["choices"] == []
        for number, event in enumerate(content, start=1):
            if piece is Completion:  # its pieces lack nothing but an end
                ended = [{**c, "finish_reason": c["finish_reason"] or "stop"}
                         for c in event["choices"]]  # fmt: skip
                event = {**event, "choices": ended}
            piece.model_validate_json(json.dumps(event), strict=True)
            usage = event.get("usage", "absent")
            if streams is not USAGE or number < len(content):
                assert usage == (None if streams is USAGE else "absent")
            else:
                assert usage["completion_tokens"] > 0


def test_lists_rows_and_errors_have_the_forms_of_the_document(folder, runs, document):
    name, key = runs["labels"].id, "a-secret-of-many-letters"
    sentences = [row["sentence"] for row in rows_of(runs["labels"])]
    with serving(folder, keys=[key]) as (address, *_):
        calls = [
            ("GET", "health", None, 200), ("GET", "v1/models", None, 200),
            ("GET", f"v1/models/{name}", None, 200), ("GET", f"v1/models/{name[-8:]}", None, 200),
            ("GET", "v1/models/none", None, 404),
            ("POST", "v1/classify", {"model": name, "input": sentences}, 200),
            ("POST", "v1/predict", {"model": name, "input": sentences}, 200),
            ("POST", "v1/predict", {"model": name, "input": ["a", 3]}, 400),
            ("POST", "v1/predict", {"model": runs["lora"].id, "input": "a", "stream": True}, 200),
            ("POST", "v1/classify", {"model": name, "input": "a", "stream": True}, 400),
            ("POST", "v1/predict", {"model": "none", "input": "a"}, 404),
            ("POST", "v1/completions", {"model": name, "prompt": "a"}, 400),
            ("POST", "v1/completions", {"model": name, "prompt": "a", "stream": True}, 400),
            ("POST", "v1/chat/completions", {"model": name, "messages": TURNS, "tools": [3]}, 400),
            ("POST", "v1/chat/completions", "a" * 2_000_000, 413),
        ]  # fmt: skip
        for method, path, body, status in calls:
            headers = {"Authorization": f"Bearer {key}"}
            found = httpx.request(method, f"{address}/{path}", json=body, headers=headers)
            assert found.status_code == status, (path, found.text)
            content = checked(document, found)
            if path.startswith("v1/models/") and status == 200:
                Model.model_validate(content, strict=True)
            refused = httpx.request(method, f"{address}/{path}", json=body)
            assert refused.status_code == (200 if path == "health" else 401)
            checked(document, refused)
            headers["Host"] = "elsewhere"
            checked(document, httpx.request(method, f"{address}/{path}", headers=headers))


def test_every_key_of_a_request_is_in_the_document(document):
    for path, keys in (("chat/completions", ["messages", "tools", "metadata", "suffix", "n"]),
                       ("completions", ["prompt", "best_of", "store"]),
                       ("classify", ["model", "input"])):  # fmt: skip
        body = document["paths"][f"/v1/{path}"]["post"]["requestBody"]["content"]
        schema = body["application/json"]["schema"]
        assert {*keys} <= schema["properties"].keys() and schema["additionalProperties"] is False
    schemas = document["components"]["schemas"]
    assert fits(None, schema["properties"]["input"], schemas) is False
    assert "stream" not in schema["properties"]


def test_choices_have_seeds_of_their_own(server, runs):
    prompts = [row["facts"] for row in rows_of(runs["lora"])[:2]]

    def texts(**more):
        body = {"model": runs["lora"].id, "prompt": prompts, "max_tokens": 8, **more}
        found = httpx.post(f"{server}/v1/completions", json=body, timeout=60)
        if not more.get("stream"):
            content = found.json()
            return [choice["text"] for choice in content["choices"]], content.get("usage")
        told = {}
        for piece in pieces_of(found.text):
            for choice in piece["choices"]:
                told[choice["index"]] = told.get(choice["index"], "") + choice["text"]
            usage = piece.get("usage")
        return [told[index] for index in range(len(told))], usage

    drawn = {"temperature": 3, "seed": 5}
    several, usage = texts(**drawn, n=3)
    single, once = texts(**drawn)
    assert several[::3] == single and len({*several}) == 6
    assert usage["prompt_tokens"] == once["prompt_tokens"]
    assert texts(**drawn, n=3, **USAGE) == (several, usage)
    assert texts(temperature=3, n=2) != texts(**drawn, n=2)
    greedy, _ = texts(n=2, best_of=2)
    assert greedy[0] == greedy[1] != greedy[2] == greedy[3]


def test_rows_of_a_request_are_numbered_as_lines_of_predict(server, runs):
    rows = [{"text": "a"}, {"text": "b", "id": "mine"}, {"text": "c"}]
    body = {"model": runs["topics"].id, "input": rows}
    found = httpx.post(f"{server}/v1/predict", json=body, timeout=60).json()["data"]
    assert [line["id"] for line in found] == [1, "mine", 3]
    assert found == runs["topics"].predict(rows)
    body["input"][2] = {}
    said = httpx.post(f"{server}/v1/predict", json=body, timeout=60).json()["error"]["message"]
    assert said.startswith("row 3: no field 'text'")


@pytest.mark.parametrize(
    "path", ["v1/responses", "v1/embeddings", "v1/audio/speech", "v1/moderations", "completions"]
)
def test_an_address_that_is_not_offered_names_those_that_are(server, path):
    found = httpx.post(f"{server}/{path}", json={"model": "a", "input": "b"})
    assert found.status_code == 404
    error = found.json()["error"]
    assert error["message"].startswith(f"POST /{path}: Not Found. For texts")
    assert "/v1/chat/completions" in error["message"] and error["param"] is error["code"] is None


def test_another_method_is_told_which_is_allowed(server):
    found = httpx.get(f"{server}/v1/completions")
    assert found.status_code == 405 and found.headers["allow"] == "POST"


def test_a_stream_that_fails_says_why_in_openais_form(server, runs, monkeypatch):
    body = {"model": runs["lora"].id, **WRITE, "stream": True}

    def fail(logits, jobs, choose=serving_texts.choose):
        if len(jobs[0].tokens) > 2:
            raise OSError("no more")
        return choose(logits, jobs)

    monkeypatch.setattr(serving_texts, "choose", fail)
    found = httpx.post(f"{server}/v1/completions", json=body, timeout=60)
    assert found.status_code == 200 and found.headers["x-accel-buffering"] == "no"
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["content-type"].startswith("text/event-stream")
    error = json.loads(found.text.strip().splitlines()[-1].removeprefix("data: "))["error"]
    assert error == {
        "message": "the row failed (OSError).", "type": "server_error", "param": None, "code": None
    }  # fmt: skip


def test_what_chooses_tokens_has_its_effect(server, runs):
    prompt = rows_of(runs["lora"])[1]["facts"]

    def text(**more):
        body = {"model": runs["lora"].id, "prompt": prompt, "max_tokens": 12, **more}
        found = httpx.post(f"{server}/v1/completions", json=body, timeout=60)
        assert found.status_code == 200, found.text
        return found.json()["choices"][0]["text"]

    greedy, token = text(temperature=0), AutoTokenizer.from_pretrained(SHIPPED)
    for key, value in (("top_k", 1), ("min_p", 1), ("top_p", 0)):
        assert text(temperature=3, seed=1, **{key: value}) == greedy
    assert text(temperature=3, seed=1, top_k=-1) == text(temperature=3, seed=1) != greedy
    assert text(logit_bias={"300": 100}) == token.decode([300] * 12).strip()
    bias = {str(number): 100 for number in range(300, 310)}
    texts = [text(logit_bias=bias), text(logit_bias=bias, presence_penalty=2)]
    assert len({*texts, text(logit_bias=bias, frequency_penalty=2)}) == 3
    assert text(logit_bias={}, presence_penalty=0, frequency_penalty=0.0) == greedy
    body = {"model": runs["lora"].id, "prompt": prompt, "logit_bias": {"2800": 1}}
    error = httpx.post(f"{server}/v1/completions", json=body).json()["error"]
    assert error["param"] == "logit_bias"
    assert error["message"] == "logit_bias has the token 2800; the model has those from 0 to 2799."


def scores_of(address, path, **body):
    """Return the scores of the first choice, of a stream or not, and its text."""
    found = httpx.post(f"{address}/v1/{path}", json=body, timeout=60)
    assert found.status_code == 200, found.text
    contents = pieces_of(found.text) if body.get("stream") else [found.json()]
    joined, text = {}, ""
    for choice in [content["choices"][0] for content in contents]:
        turn = choice.get("message") or choice.get("delta") or {}
        text += choice.get("text") or turn.get("content") or ""
        for key, values in (choice["logprobs"] or {}).items():
            joined[key] = joined.get(key, []) + (values or [])
    return joined, text


@pytest.mark.parametrize("prompt", ["Frank Venn", "😀"])
def test_written_tokens_have_their_log_probabilities(server, runs, prompt):
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    emoji = {str(token): 100 for token in tokenizer("😀é")["input_ids"][1:]}
    body = {"model": runs["lora"].id, "max_tokens": 12, "seed": 3, "temperature": 1.5}
    body |= {"logit_bias": emoji} if prompt == "😀" else {}
    words = {"prompt": prompt, "logprobs": 3}
    own, text = scores_of(server, "completions", **body, **words)
    assert scores_of(server, "completions", **body, **words, stream=True) == (own, text)
    turns = {"messages": [{"role": "user", "content": prompt}], "logprobs": True}
    chat, said = scores_of(server, "chat/completions", **body, **turns, top_logprobs=3)
    assert scores_of(server, "chat/completions", **body, **turns, top_logprobs=3, stream=True) == (
        chat, said
    )  # fmt: skip
    assert said == text and len(own["tokens"]) == len(chat["content"]) == 12
    spelled = [bytes(entry["bytes"]) for entry in chat["content"]]
    assert b"".join(spelled).decode(errors="replace").strip() == text
    for place, entry in enumerate(chat["content"]):
        assert entry["token"] == own["tokens"][place]
        assert entry["logprob"] == own["token_logprobs"][place] <= 0
        tops = {top["token"]: top["logprob"] for top in entry["top_logprobs"]}
        assert own["top_logprobs"][place] == tops | {entry["token"]: entry["logprob"]}
        assert max(tops.values()) == entry["top_logprobs"][0]["logprob"] >= entry["logprob"]
        letters, at = spelled[place].decode(errors="ignore").strip(), own["text_offset"][place]
        assert "\ufffd" in entry["token"] or letters in text[at:][: len(letters) + 1]
        assert entry["token"].startswith("bytes:") == (spelled[place].decode(errors="ignore") == "")
    if prompt == "😀":
        assert any(token.startswith("bytes:\\x") for token in own["tokens"])
    none = scores_of(server, "chat/completions", **body, **turns)[0]["content"]
    assert none == [{**entry, "top_logprobs": []} for entry in chat["content"]]


def test_offsets_are_those_of_the_echoed_text(server, runs):
    for prompt in ("3 and 4", " 3 and 4"):
        body = {"model": runs["prefix"].id, "prompt": prompt, "max_tokens": 3, "temperature": 0}
        own, text = scores_of(server, "completions", **body, echo=True, logprobs=1)
        assert text.startswith(prompt)
        for token, at in zip(own["tokens"][1:], own["text_offset"][1:], strict=True):
            assert text[at:].startswith(token), (token, at)


def test_scores_of_written_tokens_are_those_of_a_prompt(server, runs):
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    ids = tokenizer("The old boat")["input_ids"]
    body = {"model": runs["prefix"].id, "echo": True, "logprobs": 2, "temperature": 2, "seed": 1}
    own, text = scores_of(server, "completions", **body, prompt=ids, max_tokens=9)
    numbers = {token_text(tokenizer, number): number for number in range(len(tokenizer))}
    again = [*ids, *(numbers[token] for token in own["tokens"][len(ids) :])]
    other, echoed = scores_of(server, "completions", **body, prompt=again, max_tokens=0)
    assert own["tokens"] == other["tokens"] and own["text_offset"] == other["text_offset"]
    assert echoed == text == "".join(own["tokens"])
    pairs = zip(own["token_logprobs"][1:], other["token_logprobs"][1:], strict=True)
    assert all(first == pytest.approx(second, abs=1e-4) for first, second in pairs)
