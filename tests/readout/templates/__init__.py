"""Public chat templates, and what conversations teach in each, written by hand.

`NAME.jinja` behaves as a public template does, in other words. `expected.yaml` says what is learned
of each of `CASES`, or that it is refused.
"""

import json
import re
from datetime import date
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import yaml
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.chat import Chat
from ptrun.task.conversation import Conversation, answered
from ptrun.task.source import Row

FOLDER = Path(__file__).parent
MODEL = FOLDER.parents[2] / "ptrun" / "pocket" / "models" / "pocket_gpt2"
EXPECTED = yaml.safe_load((FOLDER / "expected.yaml").read_text(encoding="utf-8"))
RANDOM = {
    "special": ["<s>", "<|user|>", "<|assistant|>", "<|end|>", "<|return|>"],
    "plain": ["<think>", "</think>"],
}
"""The tokens of random templates."""
THINKING = ("drop", "keep")
TODAY = date(2026, 1, 1)


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **keys):
    return {"role": "assistant", "content": text, **keys}


def system(text):
    return {"role": "system", "content": text}


ADD = {"type": "function", "function": {"name": "add", "parameters": {}}}
_CALL = {"name": "add", "arguments": '{"a": 3, "b": 4}'}
CALL = assistant(None, tool_calls=[{"id": "abcdefghi", "type": "function", "function": _CALL}])
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": "7"}
THOUGHT = "<think>\nI add.\n</think>\n\n"
_SECOND = {**CALL["tool_calls"][0], "id": "jklmnopqr"}
CASES = {
    "one": [user("3 and 4"), assistant("7")],
    "two": [user("3 and 4"), assistant("7"), user("5 and 6"), assistant("11")],
    "system": [system("Be brief."), user("3 and 4"), assistant("7")],
    "tools": [user("3 and 4"), CALL, RESULT, assistant("It is 7.")],
    "call": [user("3 and 4"), CALL],
    "think": [
        user("3 and 4"), assistant("7", reasoning_content="I add."),
        user("5 and 6"), assistant("11", reasoning_content="I add."),
    ],
    "inside": [
        user("3 and 4"), assistant(THOUGHT + "7"), user("5 and 6"), assistant(THOUGHT + "11"),
    ],
    "kwargs": [user("3 and 4"), assistant("7")],
    "greeting": [assistant("Hi."), user("3 and 4"), assistant("7")],
    "middle": [
        user("3 and 4"), assistant("7"), system("Be brief."), user("Why?"), assistant("So."),
    ],
    "parallel": [
        user("3 and 4"), {**CALL, "tool_calls": [*CALL["tool_calls"], _SECOND]},
        RESULT, {**RESULT, "tool_call_id": "jklmnopqr"}, assistant("It is 7."),
    ],
    "spoken": [user("3 and 4"), {**CALL, "content": "I add."}, RESULT, assistant("It is 7.")],
    "reasoned": [
        user("3 and 4"), {**CALL, "reasoning_content": "I add."}, RESULT, assistant("It is 7."),
    ],
    "again": [
        user("3 and 4"), CALL, RESULT, assistant("7"),
        user("Again."), CALL, RESULT, assistant("It is 7."),
    ],
}  # fmt: skip
"""Turns as people write them; those from `greeting` on have expectations for some templates."""


class Learned(NamedTuple):
    """What a row teaches: its text, the prompt of evaluation, and the learned texts."""

    text: str
    prompt: str
    learned: list[str]


def row_of(name, case):
    """Return the row of a case."""
    row = {"messages": CASES[case]}
    if case in ("tools", "again"):
        row["tools"] = [ADD]
    if case == "kwargs":
        row["chat_template_kwargs"] = EXPECTED[name].get("kwargs_of", {"enable_thinking": False})
    return row


def cases_of(name):
    return [case for case in CASES if case in EXPECTED[name]]


def expected(name, case, thinking):
    """Return what a case teaches, or the words of its refusal."""
    text = EXPECTED[name][case]
    text = text if isinstance(text, str) else text[thinking]
    if text.startswith("refused: "):
        return text.removeprefix("refused: ")
    parts = text.replace("⟧", "⟦").split("⟦")
    return Learned("".join(parts), "".join(parts[:-2]), parts[1::2])


def template(name):
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def tokenizer_of(name):
    """Return the tokenizer of pocket_gpt2 with a template and its tokens."""
    settings = EXPECTED.get(name, RANDOM)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    ends = {f"{key}_token": settings[key] for key in ("bos", "eos") if key in settings}
    tokenizer.add_special_tokens({**ends, "extra_special_tokens": settings.get("special", [])})
    tokenizer.add_tokens(settings.get("plain", []))
    if name in EXPECTED:
        tokenizer.chat_template = template(name)
    return tokenizer


def backbone_of(name, folder):
    """Return a backbone in a new folder, whose tokenizer has a template."""
    tokenizer_of(name).save_pretrained(folder / name)
    for file in ("config.json", "model.safetensors"):
        (folder / name / file).symlink_to(MODEL / file)
    return PretrainedBackbone(name=name, path=str(folder / name), dtype="fp32")


def rendered(name, row):
    """Return the text that transformers makes of a row on the first day of 2026."""
    tokenizer, turns = tokenizer_of(name), row["messages"]
    day = re.sub(
        r"strftime_now\((.*?)\)", lambda form: f"{TODAY.strftime(form[1])}", template(name)
    )
    if EXPECTED[name].get("calls") == "text":  # apply_chat_template drops content that is null
        names = tokenizer.special_tokens_map
        return render_jinja_template([turns], chat_template=day, **names)[0][0]
    return tokenizer.apply_chat_template(
        [_loaded(turn) for turn in turns], tokenize=False, chat_template=day,
        tools=row.get("tools"), **row.get("chat_template_kwargs", {}),
    )  # fmt: skip


def _loaded(turn):
    """Return a turn whose calls have objects as arguments."""
    if "tool_calls" not in turn:
        return turn
    calls = []
    for call in turn["tool_calls"]:
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        calls.append({**call, "function": {**call["function"], "arguments": arguments}})
    return {**turn, "content": turn["content"] or "", "tool_calls": calls}


def talk_of(row):
    """Return the conversation of a row, as a task reads it."""
    return answered(Row("row", row), "messages")[0]


def asked(talk):
    """Return a conversation whose answer is not known."""
    return Conversation(talk.turns, None, talk.variables)


def learned(chat, row):
    """Return what the tokens of a row say."""
    decode = chat.backbone.tokenizer().decode
    runs = []
    for place in row.learned:
        if place - 1 not in row.learned:
            runs.append([])
        runs[-1].append(row.ids[place])
    return Learned(decode(row.ids), decode(row.prompt), [decode(run) for run in runs])


def outcome(chat, row):
    """Return what ptrun learns of a row, or why it is refused."""
    try:
        return learned(chat, *chat.rows([talk_of(row)]))
    except UserError as error:
        return str(error)


def outcomes(folder):
    """Return the outcome of each template, case and way to read thoughts."""
    backbones = {name: backbone_of(name, folder) for name in EXPECTED}
    chats = {
        (name, thinking): Chat(backbone=backbone, thinking=thinking)
        for name, backbone in backbones.items()
        for thinking in THINKING
    }
    return {
        (name, case, thinking): outcome(chat, row_of(name, case))
        for (name, thinking), chat in chats.items()
        for case in cases_of(name)
    }


def differs(name, case, thinking):
    """Return whether it is known that ptrun does something else than is expected."""
    return f"{case} {thinking}" in EXPECTED[name].get("differs", [])


def agrees(outcome, expectation):
    """Return whether an outcome is what is expected; a refusal has the words of the other."""
    if isinstance(outcome, str) and isinstance(expectation, str):
        return all(word in outcome for word in expectation.split())
    return outcome == expectation


def assert_learned(chat, row, pieces):
    """Compare a row with a text in pieces: context, learned, context, ..."""
    options = {"add_special_tokens": False, "return_offsets_mapping": True}
    encoded = chat.backbone.tokenizer()(["".join(pieces), "".join(pieces[:-2])], **options)
    cuts = [0, *accumulate(map(len, pieces))]
    spans = [cuts[place : place + 2] for place in range(1, len(pieces), 2)]
    assert [row.ids, row.prompt] == encoded["input_ids"]
    assert row.learned == [
        i
        for i, (start, end) in enumerate(encoded["offset_mapping"][0])
        if any(first <= start and end <= last for first, last in spans)
    ]
