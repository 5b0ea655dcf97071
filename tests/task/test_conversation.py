"""Conversations of a cell: their shapes, and the keys of turns and rows."""

import json

import pandas as pd
import pytest

from ptrun.errors import UserError
from ptrun.predicting.rows import given
from ptrun.task.conversation import BESIDE, FLAGS, Conversation
from ptrun.task.own import Own

TALK = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]
FUNCTION = {"name": "add", "arguments": {"a": 3}}
CALL = {"content": "", "tool_calls": [{"id": "a", "type": "function", "function": FUNCTION}]}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


def own(tmp_path, rows, **keys):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Own(None, train=str(file), messages="talk", **keys)


def read(tmp_path, turns, **beside):
    """Return the conversation of a row, and the turns as names and texts."""
    (example,) = own(tmp_path, [{"talk": turns, **beside}]).load("train")
    return Conversation.of(example)


def test_a_conversation_is_split_before_its_answer(tmp_path):
    task = own(tmp_path, [{"talk": TALK}, {"talk": [*TALK, *TALK]}])
    first, second = task.load("train")
    assert first.fields == {"messages": TALK[:1]} and first.target == ["good day"]
    assert second.fields == {"messages": [*TALK, TALK[0]]}
    for asked in given([{"talk": TALK[:1]}, {"talk": TALK}], task, {""}):
        assert asked.example.fields == first.fields and asked.example.target == []


SHAREGPT = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "good day"}]
PARTS = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in TALK]
SAYS_NOTHING = [{**turn, "tool_calls": None, "name": "", "images": []} for turn in TALK]


@pytest.mark.parametrize(
    "turns", [SHAREGPT, PARTS, SAYS_NOTHING, json.dumps(TALK), json.dumps(SHAREGPT, indent=1)]
)
def test_other_shapes_are_read_as_messages(tmp_path, turns):
    assert read(tmp_path, turns) == Conversation(TALK[:1], TALK[1])


def test_calls_of_both_kinds_are_read(tmp_path):
    plain = [TALK[0], {"role": "assistant", **CALL}]
    text = {"id": "a", "type": "function", "function": {**FUNCTION, "arguments": '{"a": 3}'}}
    (call,) = CALL["tool_calls"]
    expected = {"role": "assistant", "content": "", "tool_calls": [call]}
    for turn in (CALL, {**CALL, "content": None}, {"tool_calls": [text]}):
        assert read(tmp_path, [TALK[0], {"role": "assistant", **turn}]).answer == expected
    (example,) = own(tmp_path, [{"talk": plain}]).load("train")
    assert json.loads(example.target[0]) == FUNCTION
    older = [SHAREGPT[0], {"from": "function_call", "value": json.dumps(FUNCTION)}]
    older += [{"from": "observation", "value": "7"}, SHAREGPT[1]]
    talk = read(tmp_path, older)
    assert [turn["role"] for turn in talk.turns] == ["user", "assistant", "tool"]
    assert talk.turns[1]["tool_calls"][0]["function"] == FUNCTION


@pytest.mark.parametrize("key", FLAGS)
def test_a_turn_that_is_not_learned_is_context(tmp_path, key, caplog):
    talk = read(tmp_path, [TALK[0], {**TALK[1], key: 0}, TALK[0], {**TALK[1], key: True}])
    assert talk.turns[1] == {**TALK[1], "unlearned": True} and talk.answer == TALK[1]
    by_turn = read(tmp_path, [*TALK, *TALK], **{key: [0, 0, 0, 1]})
    assert by_turn == talk
    caplog.set_level("INFO")
    ends = [*TALK, TALK[0], {**TALK[1], key: False}, TALK[0]]
    assert read(tmp_path, ends) == Conversation(TALK[:1], TALK[1])
    assert "1 have turns behind the last learned one" in caplog.text
    task = own(tmp_path, [{"talk": TALK}, {"talk": TALK, key: 0}])
    assert len(task.load("train")) == 1
    assert task.accounts["train"].record()["left_out"] == {"no turn is learned": 1}


def test_what_a_template_reads_beside_the_turns(tmp_path):
    variables = {"tools": [TOOL], "enable_thinking": False}
    beside = {"tools": json.dumps([TOOL]), "chat_template_kwargs": {"enable_thinking": False}}
    assert read(tmp_path, TALK, **beside).variables == variables
    older = {"functions": [TOOL["function"]], "chat_template_kwargs": {"enable_thinking": False}}
    assert read(tmp_path, TALK, **older).variables == variables
    system = {"role": "system", "content": "Be short."}
    expected = Conversation([system, TALK[0]], TALK[1])
    assert read(tmp_path, TALK, system="Be short.") == expected
    assert read(tmp_path, [{**system, "role": "developer"}, *TALK]) == expected
    assert read(tmp_path, TALK, **dict.fromkeys(BESIDE)) == Conversation(TALK[:1], TALK[1])


def wrong(**more):
    return {"talk": TALK, **more}


def turn(place, **more):
    return {"talk": [{**t, **(more if i == place else {})} for i, t in enumerate(TALK)]}


REFUSED = [
    ({"talk": TALK[:1]}, "expected turns in which the assistant answers"),
    ({"talk": TALK[1:]}, "expected turns in which the assistant answers"),
    ({"talk": [{"role": "human", "content": "a"}]}, "turn 1 of talk: role 'human': unknown"),
    ({"talk": [{"from": "Human", "value": "a"}]}, "from 'Human': unknown.*human"),
    ({"talk": [{"role": "user"}]}, "content has None; expected a text"),
    ({"talk": "hello"}, "'hello'; expected a list of"),
    ({"talk": {"role": "user", "content": "a"}}, "expected a list of"),
    ({"talk": []}, "an empty cell"),
    (turn(1, content="  "), "turn 2 of talk is empty"),
    (turn(0, content=[{"type": "image_url"}]), "'image_url'}.; expected a text"),
    (turn(0, name="Ann"), "turn 1 of talk has name, which"),
    (turn(1, images=["a.png"]), "turn 2 of talk has images, which"),
    (turn(0, reasoning_content="so"), "turn 1 of talk has reasoning_content, which"),
    (turn(1, reasoning="so", thinking="no"), "turn 2 .* different values of reasoning, thinking"),
    (turn(1, weight=1, train=False), "turn 2 of talk has different values of weight, train"),
    (turn(1, tool_calls=[TOOL], function_call=FUNCTION), "values of tool_calls, function_call"),
    (turn(1, tool_call_id="a"), "turn 2 of talk has tool_call_id, which"),
    (turn(1, tool_calls=[{"id": "a"}]), "tool_calls has .*expected"),
    (turn(1, tool_calls=[{"function": {"name": "f", "arguments": "{"}}]), "tool_calls has"),
    (turn(1, tool_calls=[{"function": {"name": "f", "arguments": "[" * 10**5}}]), "tool_calls has"),
    (turn(1, weight=0.5), "weight is 0.5; expected 1 or true"),
    (turn(0, train=True), "turn 1 of talk is to be learned, and its role is user"),
    (wrong(weight=2), "weight is 2; expected"),
    (wrong(loss_mask=[1]), "loss_mask has 1 values for 2 turns"),
    (wrong(weight=1, loss_mask=[0, 1]), "weight, loss_mask say the same thing"),
    (wrong(tools="add"), "tools.* is 'add'; expected a list"),
    (wrong(tools=[TOOL], functions=[TOOL]), "has tools and functions"),
    (wrong(chat_template_kwargs={"messages": []}), "chat_template_kwargs.messages: ptrun sets it"),
    (wrong(chat_template_kwargs={"tools": [TOOL]}, tools=[TOOL]), "kwargs.tools: ptrun sets it"),
    (wrong(chat_template_kwargs=[1]), "chat_template_kwargs.*expected an object"),
    (turn(0, role="system") | {"system": "a"}, "system.*expected a text, where no turn"),
]


@pytest.mark.parametrize(("row", "told"), REFUSED)
def test_what_is_not_obeyed_is_refused_by_name(tmp_path, row, told):
    with pytest.raises(UserError, match=rf"rows.jsonl:2: (?s:.*){told}"):
        own(tmp_path, [{"talk": TALK}, row]).load("train")


def test_columns_of_a_table_are_read(tmp_path):
    file = tmp_path / "rows.parquet"
    rows = [{"talk": [*TALK, *TALK], "loss_mask": [0, 0, 0, 1]}]
    pd.DataFrame(rows).to_parquet(file)
    (example,) = Own(None, train=str(file), messages="talk").load("train")
    assert example.fields["messages"][1]["unlearned"]
