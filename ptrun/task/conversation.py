"""Conversations as people keep them, read as OpenAI's messages.

A cell holds a list of turns, or its JSON text. A turn is `{"role", "content"}`, or ShareGPT's
`{"from", "value"}`. Keys of a turn and of its row are obeyed or refused by name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptrun.errors import UserError, names, shown, unknown
from ptrun.files import from_json
from ptrun.task.dataset import MESSAGES
from ptrun.task.source import Row
from ptrun.types import Example

Turn = dict[str, Any]
UNLEARNED = "unlearned"
"""The key of a turn of the assistant that is context alone."""
FLAGS = ("weight", "train", "loss", "loss_mask", "trainable")
"""The names that tools give to one key of a turn: 1 or true learns it, 0 or false does not."""
TOOLS, VARIABLES, ANSWER = "tools", "chat_template_kwargs", "answer"
BESIDE = (*FLAGS, "system", TOOLS, "functions", VARIABLES)
"""Columns beside a conversation that are read."""
EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Values of a key that says nothing."""
REASONING = ("reasoning_content", "reasoning", "thinking")
"""The names that tools give to what the assistant thinks before it answers; the first is kept."""
ASSISTANT = "assistant"
_ROLES = {"system": "system", "developer": "system", "user": "user", ASSISTANT: ASSISTANT}
_ROLES |= {"tool": "tool", "function": "tool"}
_SHAREGPT = _ROLES | {"human": "user", "observation": "tool", "function_call": ASSISTANT}
_SHAREGPT |= dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "model", "bot"), ASSISTANT)
_CALLS = ("tool_calls", "function_call")
_KEYS = {ASSISTANT: (*_CALLS, *REASONING), "tool": ("tool_call_id", "name")}
TURNS = (
    'a list of {"role": ROLE, "content": TEXT}, or of {"from": ROLE, "value": TEXT}, or its JSON'
)
_CALL = '{"function": {"name": NAME, "arguments": OBJECT}}'


@dataclass(frozen=True)
class Conversation:
    """A conversation up to an answer.

    Args:
        turns: those before the answer, as a chat template reads them.
        answer: the assistant's turn that ends it; None if it is not known.
        variables: what the template reads beside the turns: tools, and what the row adds.
    """

    turns: Sequence[Turn]
    answer: Turn | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, example: Example) -> "Conversation":
        """Return the conversation of an example, with its answer if that is known."""
        fields, answer = example.fields, None
        if example.target:
            answer = fields.get(ANSWER, {"role": ASSISTANT, "content": example.target[0]})
        return cls(fields[MESSAGES], answer, fields.get(VARIABLES, {}))

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of an example; an answer of more than a text is one of them."""
        fields: dict[str, Any] = {MESSAGES: [*self.turns]}
        if self.variables:
            fields[VARIABLES] = self.variables
        if self.answer is not None and self.answer.keys() - {"role", "content"}:
            fields[ANSWER] = self.answer
        return fields

    @property
    def target(self) -> list[str]:
        """The answer as a list of one text; that of calls is JSON."""
        assert self.answer is not None
        calls = (call["function"] for call in self.answer.get("tool_calls", []))
        lines = "\n".join(json.dumps(call, ensure_ascii=False) for call in calls)
        return [self.answer["content"] or lines]


def asked(row: Row, column: str) -> Conversation:
    """Return the conversation of a row without a last turn of the assistant."""
    turns, variables = _read(row, column)
    return Conversation(turns[:-1] if turns[-1]["role"] == ASSISTANT else turns, None, variables)


def answered(row: Row, column: str) -> tuple[Conversation | None, int]:
    """Return a conversation up to the last turn that is learned, and how many turns follow it.

    None means that no turn is learned, as the row says.
    """
    turns, variables = _read(row, column)
    answers = [place for place, turn in enumerate(turns) if place and turn["role"] == ASSISTANT]
    if not answers:
        raise row.wrong(column, "turns in which the assistant answers another one")
    learned = [place for place in answers if not turns[place].get(UNLEARNED)]
    if not learned:
        return None, 0
    last = learned[-1]
    return Conversation(turns[:last], turns[last], variables), len(turns) - last - 1


def turns_of(value: Any) -> list[dict[str, Any]] | None:
    """Return the turns of a cell, a list or its JSON text; None if it holds none."""
    turns = _loaded(value)
    if isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns):
        return turns if turns and all({"role", "from"} & turn.keys() for turn in turns) else None
    return None


def _read(row: Row, column: str) -> tuple[list[Turn], dict[str, Any]]:
    """Return the turns of a row and what the template reads beside them, checked."""
    cell = turns_of(row.value(column))
    if cell is None:
        raise row.wrong(column, TURNS)
    places = (f"{row.where}: turn {number} of {column}" for number in range(1, len(cell) + 1))
    turns = [*map(_turn, places, cell, _flags(row, len(cell)))]
    if (system := row.data.get("system")) not in EMPTY:
        if not isinstance(system, str) or any(turn["role"] == "system" for turn in turns):
            raise row.wrong("system", "a text, where no turn is the system's")
        turns = [{"role": "system", "content": system}, *turns]
    variables = _json(row, VARIABLES, dict)
    tools, functions = _json(row, TOOLS, list), _json(row, "functions", list)
    if tools and functions:
        raise UserError(f"{row.where}: has tools and functions. Leave one of them out.")
    taken = {MESSAGES, "add_generation_prompt", *([TOOLS] if tools or functions else ())}
    for name in sorted(taken & variables.keys()):
        raise UserError(f"{row.where}: {VARIABLES}.{name}: ptrun sets it. Delete it.")
    tools = tools or [{"type": "function", "function": function} for function in functions]
    return turns, {**variables, **({TOOLS: tools} if tools else {})}


def _turn(where: str, raw: Mapping[str, Any], learned: bool | None) -> Turn:
    """Return a turn as OpenAI writes it."""
    roles, name, text = _ROLES, "role", "content"
    if "role" not in raw:
        roles, name, text = _SHAREGPT, "from", "value"
    said = {k: v for k, v in raw.items() if k == text or v not in EMPTY}
    kind, content = str(said.pop(name, None)), said.pop(text, None)
    if kind not in roles:
        raise UserError(unknown(f"{where}: {name} {shown(kind)}", kind, roles))
    role = roles[kind]
    if kind == "function_call":
        said["function_call"], content = content, ""
    for synonyms in (FLAGS, REASONING, _CALLS):
        keys = [key for key in synonyms if key in said]
        if any(said[key] != said[keys[0]] for key in keys):
            raise UserError(f"{where} has different values of {', '.join(keys)}. Leave one.")
    for key in FLAGS:
        if key in said:
            learned = _flag(f"{where}: {key}", said.pop(key))
    if learned and role != ASSISTANT:
        raise UserError(f"{where} is to be learned, and its role is {kind}. Delete the key.")
    if more := [key for key in said if key not in _KEYS.get(role, ())]:
        read = ", ".join((name, text, *FLAGS, *_KEYS.get(role, ())))
        raise UserError(f"{where} has {names(more)}, which ptrun does not read. It reads {read}.")
    calls = [said.pop(key) for key in _CALLS if key in said]
    content = "" if calls and content is None else content
    turn: Turn = {"role": role, "content": _text(where, text, content)}
    if calls:
        turn["tool_calls"] = _calls(f"{where}: tool_calls", calls[0])
    elif role == ASSISTANT and learned is not False and not turn["content"].strip():
        raise UserError(f"{where} is empty, so nothing is learned. Delete the row.")
    for key in said.keys() & {*REASONING}:
        turn[REASONING[0]] = _text(where, key, said.pop(key))
    return turn | said | ({UNLEARNED: True} if role == ASSISTANT and learned is False else {})


def _text(where: str, key: str, content: Any) -> str:
    """Return a text, or the text of OpenAI's parts."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [p.get("text", p) for p in parts if isinstance(p, dict) and p.get("type") == "text"]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where}: {key} has {shown(content)}; expected a text.")
    return "".join(texts)


def _calls(where: str, raw: Any) -> list[dict[str, Any]]:
    """Return calls with their arguments as objects, as templates expect."""
    raw, calls = _loaded(raw), []
    for call in raw if isinstance(raw, list) else [raw]:
        call = call if isinstance(call, dict) else {}
        function = _loaded(call.get("function", call))
        function = function if isinstance(function, dict) else {}
        arguments = _loaded(function.get("arguments", {}) or {})
        if not isinstance(function.get("name"), str) or not isinstance(arguments, dict):
            raise UserError(f"{where} has {shown(raw)}; expected {_CALL}.")
        form = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
        calls.append(({"id": call["id"]} if call.get("id") else {}) | form)
    return calls


def _flags(row: Row, count: int) -> Sequence[bool | None]:
    """Return what a row's own columns say of each turn: learned, not learned, or None."""
    flags: Sequence[bool | None] = [None] * count
    keys = [key for key in FLAGS if row.data.get(key) not in EMPTY]
    if len(keys) > 1:
        raise UserError(f"{row.where}: {names(keys)} say the same thing. Leave one of them.")
    for key in keys:
        value, where = _loaded(row.data.get(key)), f"{row.where}: {key}"
        if isinstance(value, list) and value:
            if len(value) != count:
                raise UserError(f"{where} has {len(value)} values for {count} turns.")
            flags = [_flag(where, flag) for flag in value]
        elif value not in EMPTY and not _flag(where, value):
            flags = [False] * count
    return flags


def _flag(where: str, value: Any) -> bool:
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    raise UserError(f"{where} is {shown(value)}; expected 1 or true (learned), 0 or false (not).")


def _json(row: Row, key: str, kind: type) -> Any:
    """Return an object or a list of a row, perhaps as JSON text; empty if there is none."""
    value = _loaded(row.data.get(key))
    if value not in EMPTY and not isinstance(value, kind):
        raise row.wrong(key, "an object" if kind is dict else "a list of objects")
    return value or kind()


def _loaded(value: Any) -> Any:
    """Return the value of JSON text; anything else as it is."""
    try:
        return from_json(value) if isinstance(value, str) else value
    except ValueError:
        return value
