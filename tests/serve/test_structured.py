"""Answers in a form: random schemas and scores, and a server whose template writes calls."""

import json
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path
from typing import Literal

import httpx
import pytest
import torch
from openai import BadRequestError, LengthFinishReasonError, OpenAI
from pydantic import BaseModel

import ptrun
from ptrun.backbone import tokenizers
from ptrun.backbone.grammar import Grammar, GrammarError, spelled
from ptrun.readout.calls import CallForm
from ptrun.serve import batches as serving_texts
from ptrun.serve import reading
from ptrun.serve.rows import WaitingRow, Wish
from ptrun.serve.structured import Structure
from tests.readout import templates
from tests.serve.conftest import serving
from tests.tiers import package

package("llguidance")
FOLDER = Path(tokenizers.__file__).parents[1] / "pocket" / "models" / "pocket_gpt2"
TOKENIZER = tokenizers.load(FOLDER, "gpt2")
ENDS = [TOKENIZER.eos_token_id]
WORDS = TOKENIZER.convert_ids_to_tokens(range(len(TOKENIZER)))
CLOSING = torch.tensor([0.4 * any(c in word for c in '",}]') for word in WORDS])
FORM = CallForm('<call>{"name": "', '", "arguments": ', '} "qzxcall12"</call>', '}, {"name": "')
SPELL = partial(spelled, TOKENIZER, ENDS)


def fits(value, schema, defs):
    """Whether a value is valid; of JSON Schema what `schema_of` writes."""
    schema = defs[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    kind = kinds.get(schema.get("type"), object)
    if "anyOf" in schema:
        return any(fits(value, part, defs) for part in schema["anyOf"])
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        return kind is object and value in schema["enum"]
    if kind is dict:
        named = all(key in schema["properties"] for key in value)
        there = all(key in value for key in schema["required"])
        return (
            named
            and there
            and all(fits(v, schema["properties"][k], defs) for k, v in value.items())
        )
    if kind is list:
        parts = schema.get("prefixItems", [schema.get("items")] * len(value))
        right = schema["minItems"] <= len(value) <= schema["maxItems"]
        return right and all(map(partial(fits, defs=defs), value, parts))
    if kind is str:
        right = schema["minLength"] <= len(value) <= schema["maxLength"]
        return right and re.search(schema.get("pattern", ""), value) is not None
    if kind is int:
        return schema["minimum"] <= value < schema["exclusiveMaximum"] and not value % schema.get(
            "multipleOf", 1
        )
    return True


def schema_of(dice, depth=3):
    """Return a random schema."""
    inner, count = partial(schema_of, dice, depth - 1), dice.randrange(4)
    kinds = ["string", "pattern", "integer", "enum", "boolean", "ref"]
    kind = dice.choice(kinds + ["object", "array", "prefix", "any"] * (depth > 0) * 2)
    if kind == "object":
        names = [f'{dice.choice("aé")} "{n}' for n in range(count)]
        needed = [name for name in names if dice.random() < 0.5]
        return {"type": "object", "properties": {n: inner() for n in names}, "required": needed}
    if kind == "array":
        return {"type": "array", "items": inner(), "minItems": count // 2, "maxItems": count}
    if kind == "prefix":
        parts = [inner() for _ in range(count)]
        sizes = {"minItems": count, "maxItems": count}
        return {"type": "array", "prefixItems": parts, "items": False, **sizes}
    if kind == "any":
        return {"anyOf": [inner() for _ in range(count + 1)]}
    if kind == "string":
        return {"type": "string", "minLength": count, "maxLength": count + dice.randrange(5)}
    if kind == "pattern":
        sizes = {"minLength": 0, "maxLength": 9}
        return {"type": "string", "pattern": "^[A-C]{2}-[0-9]+$", **sizes}
    if kind == "integer":
        more = {"multipleOf": dice.choice((3, 7))} if count else {}
        return {"type": "integer", "minimum": -9, "exclusiveMaximum": 50, **more}
    if kind == "enum":
        return {"enum": dice.sample([None, 1.5, "é", 'a"b', [], {"b": [1]}, False], count + 1)}
    return {"$ref": "#/$defs/r"} if kind == "ref" else {"type": "boolean"}


def written(structure, seed, form=None):
    """Return a text that random scores write."""
    grammar = Grammar(TOKENIZER, ENDS, structure.grammar(form, SPELL))
    dice, tokens = torch.Generator().manual_seed(seed), []
    while len(tokens) < 600:
        scores = torch.rand(len(TOKENIZER), generator=dice) + CLOSING
        tokens.append(int(grammar(tokens, scores).argmax()))
        if tokens[-1] in ENDS:
            return TOKENIZER.decode(tokens[:-1], clean_up_tokenization_spaces=False)
    raise AssertionError("no end")


@pytest.mark.parametrize("seed", range(60))
def test_a_text_is_valid_under_a_random_schema(seed):
    dice = random.Random(seed)
    defs = {"r": schema_of(dice, 0) | {}}
    while "$ref" in defs["r"]:
        defs["r"] = schema_of(dice, 0)
    schema = schema_of(dice)
    text = written(Structure({**schema, "$defs": defs}), seed)
    assert fits(json.loads(text), schema, defs), (schema, text)


def test_a_text_as_json_writes_it_passes():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}},
    }
    text = structure = Structure(schema).grammar(None, SPELL)
    for text in (json.dumps({"a": [1, 2]}), '{"a":[1,2]}'):
        grammar = Grammar(TOKENIZER, ENDS, structure)
        for place, token in enumerate(ids := TOKENIZER(text)["input_ids"]):
            assert torch.isfinite(grammar(ids[:place], torch.zeros(len(TOKENIZER)))[token])


def test_calls_are_of_the_functions_and_their_arguments_valid():
    schemas = {
        "add": {
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["a"],
        },
        "none": {"type": "object", "properties": {}},
    }
    tools = tuple(schemas.items())
    counts = set()
    for seed in range(40):
        for most in (1, 4):
            structure = Structure(tools=tools, required=True, most=most)
            text, calls = structure.reader(FORM).read(written(structure, seed, FORM))
            assert text == "" and 1 <= len(calls) <= most
            for call in calls:
                value = json.loads(call["function"]["arguments"])
                named = call["function"]["name"]
                assert [*value] == (["a"] if named == "add" else []), call
            counts.add(len(calls))
    assert {1, 2} <= counts


def test_a_form_or_a_call_as_the_model_likes():
    structure = Structure({"enum": ["x"]}, (("add", {"type": "object", "properties": {}}),))
    texts = {written(structure, seed, FORM).partition(" ")[0].strip() for seed in range(30)}
    assert {'"x"', '<call>{"name":'} <= texts


def test_an_integer_of_any_size_may_be_a_constant():
    assert written(Structure({"type": "integer", "const": 10**17}), 0).strip() == f"{10**17}"


def test_properties_without_a_name_are_written_only_where_a_schema_says_so():
    named = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    closed = Structure(named).grammar(None, SPELL)
    assert closed.count('"additionalProperties": false') == 1
    for schema in (
        {**named, "additionalProperties": {"type": "integer"}},
        {**named, "patternProperties": {"^b": {}}},
        {"allOf": [named, named], "type": "object"},
        {"anyOf": [named, {"properties": {"c": {}}}], "properties": {"b": {}}},
        {"type": "object", "properties": {"a": {"const": {"properties": {}}}}, "required": ["b"]},
        {"type": "object"},
    ):
        assert '"additionalProperties": false' not in Structure(schema).grammar(None, SPELL)
    nested = {"type": "object", "properties": {"p": {"type": "array", "items": named}}}
    assert Structure(nested).grammar(None, SPELL).count('"additionalProperties": false') == 2
    assert "additionalProperties" not in json.dumps(nested)  # the client's stays as it is


HOSTILE = {
    "optional": {"properties": {f"p{i}": {"type": "string"} for i in range(3000)}},
    "both": {
        "allOf": [
            {"anyOf": [{"properties": {f"{k}{i}": {"type": "string"}}} for k in "ab"]}
            for i in range(12)
        ]
    },
    "pattern": {"type": "string", "pattern": "(" * 5000 + "a" + ")" * 5000},
    "enum": {"enum": [f"value {i}" for i in range(30_000)]},
    "refs": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {}]}}, "$ref": "#/$defs/a"},
    "required": {"type": "object", "properties": {}, "required": 5},
    "own switch": {"type": "string", "format": "regex", "x-guidance": {"lenient": True}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused(name):
    with pytest.raises(GrammarError):
        Grammar(TOKENIZER, ENDS, Structure(HOSTILE[name]).grammar(None, SPELL))


# A server.

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
            "required": ["a"],
        },
    },
}
STOP = {"type": "function", "function": {"name": "stop"}}
NAMED = {"type": "function", "function": {"name": "stop"}}
TURNS = [{"role": "user", "content": "3 and 4"}]
DEEP = reduce(lambda inner, _: {"type": "array", "items": inner}, range(700), {})
CALLED = '<tool_call>\n{"name": "add", "arguments": {"a": %d}}\n</tool_call>'


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    """Yield a client, the id of a run on conversations, and the batches of its server."""
    from transformers import AutoModelForCausalLM

    out = tmp_path_factory.mktemp("talking")
    model = AutoModelForCausalLM.from_pretrained(templates.MODEL)
    model.resize_token_embeddings(2880, mean_resizing=False)  # more than the tokenizer has
    model.save_pretrained(out / "model")
    templates.tokenizer_of("qwen3").save_pretrained(out / "model")
    answer = templates.assistant("7")
    rows = [{"messages": [templates.user(f"{n}"), answer]} for n in range(40)]
    (out / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = ptrun.run(
        f"backbone.path={out / 'model'}", "method=lora", "task=csv", "train.max_steps=1",
        f"task.train={out / 'rows.jsonl'}", "task.messages=messages", f"outputs={out}",
        "readout.max_new_tokens=80",
    )  # fmt: skip
    with serving(run.folder.parent) as (address, _, batches):
        yield (
            OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0),
            run.folder.name,
            batches,
        )


@pytest.fixture
def says(talking, monkeypatch):
    """Return a function that says what the model writes, with the template's tokens."""
    tokenizer = templates.tokenizer_of("qwen3")

    def say(text):
        script = [*tokenizer(text)["input_ids"], tokenizer.convert_tokens_to_ids("<|im_end|>")]
        monkeypatch.setattr(
            serving_texts, "choose", lambda _, jobs: [script[len(job.tokens)] for job in jobs]
        )

    return say


def asked(talking, **more):
    client, run, _ = talking
    return client.chat.completions.create(model=run, messages=TURNS, **more)


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


class Sum(BaseModel):
    """A sum."""

    total: Literal[7, 8]
    words: list[Literal["é", "so"]] | None


@pytest.mark.parametrize("how", [{"temperature": 0}, {"temperature": 2, "seed": 5, "top_k": 3}])
def test_a_parsed_answer_is_of_the_client_s_class(talking, how):
    client, run, _ = talking
    more = {"extra_body": {"top_k": how["top_k"]}} if "top_k" in how else {}
    how = {key: value for key, value in how.items() if key != "top_k"}
    texts = set()
    for seed in range(4):
        answer = client.chat.completions.parse(
            model=run, messages=TURNS, response_format=Sum, **{**how, "seed": seed}, **more
        )
        assert isinstance(answer.choices[0].message.parsed, Sum)
        assert answer.choices[0].finish_reason == "stop"
        texts.add(answer.choices[0].message.content)
    assert len(texts) > 1 or not how["temperature"]


def test_completions_take_a_form_too(talking):
    client, run, _ = talking
    form = {"response_format": schema_format({"enum": ["yes", "no"]})}
    answer = client.completions.create(model=run, prompt="3 and 4", n=2, extra_body=form)
    assert {choice.text for choice in answer.choices} <= {'"yes"', '"no"'}


def test_too_few_tokens_end_with_length(talking):
    answer = asked(talking, response_format={"type": "json_object"}, max_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    with pytest.raises(LengthFinishReasonError):
        talking[0].chat.completions.parse(
            model=talking[1], messages=TURNS, response_format=Sum, max_tokens=2
        )


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("how", [{}, {"temperature": 2, "n": 3, "seed": 1}])
def test_a_call_that_is_asked_for_is_there(talking, choice, how):
    answer = asked(talking, tools=[ADD, STOP], tool_choice=choice, parallel_tool_calls=False, **how)
    assert len(answer.choices) == how.get("n", 1)
    for choice_ in answer.choices:
        (call,) = choice_.message.tool_calls
        value = json.loads(call.function.arguments)
        assert choice_.finish_reason == "tool_calls" and choice_.message.content is None
        assert call.function.name in (["stop"] if choice == NAMED else ["add", "stop"])
        assert value == {} if call.function.name == "stop" else 0 <= value["a"] <= 99
        assert re.fullmatch("[a-zA-Z0-9]{9}", call.id) and call.type == "function"


def test_calls_that_the_model_writes_are_read(talking, says):
    says(f"I add. {CALLED % 3}\n{CALLED % 4}")
    for more, count in (({}, 2), ({"parallel_tool_calls": False}, 1)):
        (choice,) = asked(talking, tools=[ADD], **more).choices
        calls = [
            (call.function.name, call.function.arguments) for call in choice.message.tool_calls
        ]
        assert calls == [("add", '{"a": 3}'), ("add", '{"a": 4}')][:count]
        assert choice.message.content == "I add." and choice.finish_reason == "tool_calls"
    (choice,) = asked(talking, tools=[ADD], tool_choice="none").choices
    assert choice.message.tool_calls is None and '"add"' in choice.message.content


@pytest.mark.parametrize(
    "text", ["It is 7.", CALLED.replace("add", "other") % 3, '{"name": "add"}']
)
def test_what_is_no_call_stays_text(talking, says, text):
    says(text)
    (choice,) = asked(talking, tools=[ADD]).choices
    assert choice.message.tool_calls is None and choice.finish_reason == "stop"
    assert choice.message.content == re.sub("</?tool_call>", "", text).strip() or (
        choice.message.content == text
    )


def test_a_stream_has_words_then_calls(talking, says):
    says(f"I add <it>. {CALLED % 3}\n{CALLED % 4}")
    deltas = [
        (c.choices[0].delta, c.choices[0].finish_reason)
        for c in asked(talking, tools=[ADD], stream=True)
    ]
    words = [delta.content for delta, _ in deltas if delta.content]
    assert "".join(words) == "I add <it>." and len(words) > 2
    calls = [call for delta, _ in deltas for call in delta.tool_calls or []]
    assert [(c.index, c.function.arguments) for c in calls] == [(0, '{"a": 3}'), (1, '{"a": 4}')]
    assert deltas[-1][1] == "tool_calls" and all(c.id and c.function.name == "add" for c in calls)


def test_rows_of_different_forms_are_written_together_as_alone(talking):
    _, run, batches = talking
    tools = (("add", ADD["function"]["parameters"]),)
    some = {**schema_of(random.Random(3)), "$defs": {"r": {"type": "null"}}}
    forms = [Structure({"enum": ["x", "y", "zz"]}), Structure(some), None]
    forms += [Structure(tools=tools, required=True), Structure({"type": "integer"})]

    def rows(temperature):
        return [
            WaitingRow(run, {"messages": TURNS, "tools": [ADD]},
                       Wish(40, temperature, structure=form, seed=7), uncut=True)
            for form in forms
        ]  # fmt: skip

    for temperature in (0.0, 1.5):
        together, alone = rows(temperature), rows(temperature)
        batches.add(together)
        texts = [job.done.result(60).prediction.value for job in together]
        for job, text in zip(alone, texts, strict=True):
            batches.add([job])
            assert job.done.result(60).prediction.value == text
        assert texts[0] in ('"x"', '"y"', '"zz"') and int(texts[4]) < 2**53


def test_a_slow_grammar_holds_up_nobody(talking, monkeypatch):
    waits, usual = threading.Event(), reading.Grammar
    monkeypatch.setattr(reading, "Grammar", lambda *args: waits.wait(60) and usual(*args))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(asked, talking, response_format=schema_format({"enum": [1]}))
        assert asked(talking, max_tokens=3).choices and not slow.done()
        waits.set()
        assert slow.result(60).choices[0].message.content == "1"


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"response_format": schema_format({"not": {}})}, "response_format", '"not"'),
        ({"response_format": schema_format(DEEP)}, "response_format", "nested too deeply"),
        (
            {"response_format": schema_format({"type": "integer", "minimum": 10**30})},
            "response_format",
            "as 64 bits hold",
        ),
        ({"response_format": {"type": "grammar"}}, "response_format.type", "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema"),
        (
            {"response_format": {"type": "json_object", "strict": True}},
            "response_format.strict",
            "not read",
        ),
        ({"tools": [ADD], "tool_choice": {**NAMED}}, "tool_choice", "'stop'"),
        ({"tools": [ADD], "tool_choice": "any"}, "tool_choice", '"required"'),
        ({"tool_choice": "required"}, "tool_choice", "with tools"),
        ({"tools": [ADD, ADD]}, "tools", "two functions are named add"),
        ({"tools": [{**ADD, "type": "custom"}]}, "tools[0].type", "function"),
        (
            {"tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "pattern",
        ),
        (
            {"tools": [{**NAMED, "function": {"name": "a", "parameters": {"type": "string"}}}]},
            "tools",
            "expected object",
        ),
        (
            {
                "tools": [{**NAMED, "function": {"name": "a", "parameters": {"if": {}}}}],
                "tool_choice": "required",
            },
            "tools",
            '"if"',
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_obeyed_is_refused_by_name(talking, more, param, words, stream):
    with pytest.raises(BadRequestError) as told:
        asked(talking, stream=stream, **more)
    assert words in str(told.value.body["message"]) and told.value.body["param"] == param


def test_a_run_without_conversations_has_forms_but_no_tools(server, runs):
    body = {"model": runs["lora"].folder.name, "messages": TURNS}
    form = {"response_format": schema_format({"enum": ["yes", "no"]})}
    answer = httpx.post(f"{server}/v1/chat/completions", json={**body, **form}).json()
    assert answer["choices"][0]["message"]["content"] in ('"yes"', '"no"')
    answer = httpx.post(f"{server}/v1/chat/completions", json={**body, "tools": [ADD]})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "tools"


def test_without_the_package_a_form_is_refused_and_calls_are_read(talking, says, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(BadRequestError, match=r"pip install 'ptrun\[structured\]'"):
        asked(talking, response_format=schema_format({"const": "not asked before"}))
    says(CALLED % 3)
    assert asked(talking, tools=[ADD]).choices[0].message.tool_calls
