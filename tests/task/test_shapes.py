"""Shapes of instructions and conversations: recognised, refused by name, equal in every file."""

import csv
import json
import logging
from pathlib import Path

import pandas as pd
import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.predicting.rows import given
from ptrun.runs.finished import recalled
from ptrun.runs.plan import plan
from ptrun.task.conversation import ASSISTANT, UNLEARNED
from ptrun.task.multi import Multi
from ptrun.task.own import Own


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logging.getLogger("ptrun").propagate = True


def write(rows, file="a.jsonl"):
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def turns(*texts):
    return [{"role": ("user", ASSISTANT)[i % 2], "content": text} for i, text in enumerate(texts)]


SHAREGPT = [{"from": "human", "value": "Add."}, {"from": "gpt", "value": "3"}]
PAIR = {"prompt": turns("Add."), "completion": turns("", "3")[1:]}
ASKED = {"messages": turns("Add.")}
KNOWN = {
    "alpaca": (
        {"instruction": "Add.", "input": "1, 2", "output": "3"},
        "'task.text=[instruction,input]' task.answer=output",
        {"instruction": "Add.", "input": "1, 2"},
    ),
    "alpaca without input": (
        {"instruction": "Add.", "output": "3", "text": "Add. 3"},
        *("task.text=instruction task.answer=output", {"instruction": "Add."}),
    ),
    "dolly": (
        {"instruction": "Add.", "context": "1, 2", "response": "3", "category": "sums"},
        "'task.text=[instruction,context]' task.answer=response",
        {"instruction": "Add.", "context": "1, 2"},
    ),
    "prompt and completion": (
        {"prompt": "Add.", "completion": "3"},
        *("task.text=prompt task.answer=completion", {"prompt": "Add."}),
    ),
    "prompt and response": (
        {"prompt": "Add.", "response": "3"},
        *("task.text=prompt task.answer=response", {"prompt": "Add."}),
    ),
    "question and answer": (
        {"id": 1, "Question": "Add.", "Answer": "3"},
        *("task.text=Question task.answer=Answer", {"Question": "Add."}),
    ),
    "OpenAI": ({"messages": turns("Add.", "3")}, "task.messages=messages", ASKED),
    "ShareGPT": ({"conversations": SHAREGPT}, "task.messages=conversations", ASKED),
    "JSON text": ({"conversation": json.dumps(SHAREGPT)}, "task.messages=conversation", ASKED),
    "turns": (PAIR, "task.text=prompt task.answer=completion", ASKED),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_shape_is_recognised_by_its_columns(name, caplog):
    row, typed, fields = KNOWN[name]
    caplog.set_level("INFO")
    task = Own(None, train=write([row] * 3))
    assert f"a.jsonl: recognised {typed}" in caplog.text
    first = task.load("train")[0]
    assert first.fields == fields and first.target == ["3"]
    keys = dict(word.strip("'").removeprefix("task.").split("=") for word in typed.split())
    keys = {k: v[1:-1].split(",") if v.startswith("[") else v for k, v in keys.items()}
    assert task.recognised == keys
    same = Own(None, train="a.jsonl", **keys)
    assert not same.recognised and same.load("train") == task.load("train")


TALKS = turns("Add.", "3")
TYPE = "Type task.text=COLUMN task.label=COLUMN, or task.answer=COLUMN"
UNKNOWN = {
    "labels": ({"text": "a", "label": 1}, [TYPE, "columns: text, label"], "asks nothing"),
    "a text": ({"text": "a", "url": "b"}, [TYPE, "A text alone asks nothing"], "nearest"),
    "near": (
        {"prompt": "a", "completions": "b"},
        ["prompt and completion, lacks completion; did you mean 'completions'?"],
        "asks nothing",
    ),
    "near talk": ({"message": TALKS}, ["messages, lacks messages; did you mean 'message'"], "and"),
    "pairs": (
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        *(["Pairs of preferences are not learned"], "nearest"),
    ),
    "two answers": (
        {"prompt": "a", "completion": "b", "response": "c"},
        ["2 shapes; type one: task.text=prompt task.answer=completion, or task.text=prompt"],
        "nearest",
    ),
    "choices": (
        {"question": "a", "choices": ["b", "c"], "answer": 1},
        ["choices would not be read; if that is meant, type task.text=question task.answer=answer"],
        "nearest",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_recognised_is_told_with_the_nearest_shape(name):
    row, said, unsaid = UNKNOWN[name]
    with pytest.raises(UserError) as raised:
        Own(None, train=write([row]))
    told = str(raised.value)
    assert told.startswith("a.jsonl: task.text and task.label are missing; columns:")
    assert all(words in told for words in said) and unsaid not in told.split("\n")[1], told
    with pytest.raises(UserError, match=r"task\.text: expected one or two columns"):
        Own(None, train="a.jsonl", label="label")


OTHER = {
    "a text": ("Add.", "is 'Add.'; expected a list of .* .texts are task.text=COLUMN task.answer"),
    "Python's own form": (str(TALKS), "or its JSON"),
    "a turn": (TALKS[0], "expected a list of"),
    "texts": (["Add.", "3"], "expected a list of"),
    "preferences": ([{"chosen": "a", "rejected": "b"}], "pairs of preferences are not learned"),
    "a pair": ({"chosen": TALKS, "rejected": TALKS}, "pairs of preferences are not learned"),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_column_that_holds_no_conversation_says_what_to_type(name):
    cell, told = OTHER[name]
    rows = [{"talk": None}, {"talk": cell}]
    with pytest.raises(UserError, match=rf"a.jsonl:2: field 'talk' .*{told}"):
        Own(None, train=write(rows), messages="talk")
    assert Own(None, train=write([{"talk": TALKS}, *rows]), messages="talk")
    with pytest.raises(UserError, match=r"leave task.text, task.label, task.answer and task.patt"):
        Own(None, train="a.jsonl", messages="talk", pattern="{~talk} {mask}")


def test_turns_of_a_completion_alone_are_learned():
    asked, answered = (
        turns("Hello.", "Good day.", "Add 1 and 2."),
        turns("", "3", "And 4?", "7")[1:],
    )
    rows = [{"prompt": asked, "completion": answered}] * 2
    task = Own(None, train=write(rows), text="prompt", answer="completion")
    first = task.load("train")[0]
    *context, said, more = first.fields["messages"]
    assert [turn.get(UNLEARNED) for turn in context] == [None, True, None]
    assert (said["content"], said.get(UNLEARNED), more["content"]) == ("3", None, "And 4?")
    assert first.target == ["7"]
    # as text, and without the files
    text = [{name: json.dumps(cell) for name, cell in row.items()} for row in rows]
    assert (
        Own(None, train=write(text), text="prompt", answer="completion").load("train")[0] == first
    )
    node = {"_target_": "ptrun.task.own.Own", "text": "prompt", "answer": "completion"}
    task = recalled({**node, "train": "gone.jsonl"}, task.recorded(), None)
    (question,) = given([{"prompt": asked}], task, {""})
    assert question.example.fields == {"messages": asked} and task.fields == ["messages"]


MIXED = {
    "a text after turns": (
        [PAIR, {"prompt": "a", "completion": "b"}],
        "2: field 'prompt' is 'a'; expected turns, as in",
    ),
    "turns after a text": (
        [{"prompt": "a", "completion": "b"}, PAIR],
        "2: 'prompt' is a list.*Turns",
    ),
    "turns before a text": (
        [PAIR | {"completion": "b"}],
        "1: prompt holds turns, completion does not. Write turns in both, or type a task.pattern",
    ),
    "a text before turns": ([PAIR | {"prompt": "a"}], "1: completion holds turns, prompt does not"),
    "JSON of turns before a text": (
        [{"prompt": json.dumps(PAIR["prompt"]), "completion": "b"}],
        "1: prompt holds turns, completion does not",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_texts_and_turns_do_not_mix(name):
    rows, told = MIXED[name]
    with pytest.raises(UserError, match=f"a.jsonl:{told}"):
        Own(None, train=write(rows)).load("train")


CALL = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
ROWS = {
    "OpenAI": [{"messages": turns(f"Add {i}.", f"{i}", "More?", "No.")} for i in range(5)],
    "ShareGPT": [{"conversations": SHAREGPT, "source": f"{i}"} for i in range(5)],
    "turns": [PAIR] * 5,
    "calls": [
        {"messages": [*turns("Add 1."), {"role": ASSISTANT, "content": "", "tool_calls": CALL}]}
    ]
    * 5,
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_the_same_in_every_form_of_file(name):
    rows = ROWS[name]
    write(rows)
    Path("a.json").write_text(json.dumps(rows, indent=1))
    Path("wrapped.json").write_text(json.dumps({"data": rows}))
    with open("a.csv", "w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows({k: json.dumps(v) for k, v in row.items()} for row in rows)
    pd.DataFrame(rows).to_parquet("a.parquet")
    first, *others = (
        Own(None, train=file).load("train")
        for file in ("a.jsonl", "a.json", "wrapped.json", "a.csv", "a.parquet")
    )
    assert len(first) == 5 and all(other == first for other in others)
    assert Own(None, train=write(rows[:1])).load("train")[0] == first[0]  # a row is no list of rows


def test_what_is_recognised_is_recorded_as_if_it_were_typed():
    write([{"instruction": f"Do {i}", "input": "", "output": "ok"} for i in range(8)])
    run = ["task=csv", "task.train=a.jsonl", "backbone=pocket_gpt2", "method=lora"]
    found = plan(compose_run(run))
    typed = plan(compose_run([*run, "task.text=[instruction,input]", "task.answer=output"]))
    assert found.run_id == typed.run_id and found.content == typed.content
    assert found.request.task == typed.request.task
    assert found.request.task["text"] == ["instruction", "input"]


def test_a_task_of_several_names_its_columns():
    tasks = {name: Own(None, train=write([KNOWN["dolly"][0]])) for name in "ab"}
    with pytest.raises(UserError, match=r"task two: a lacks columns: type .*'answer': 'response'"):
        Multi(None, name="two", version=1, tasks=tasks)
