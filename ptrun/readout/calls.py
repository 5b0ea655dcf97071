"""Calls of functions as a chat template writes them: the parts of a call, and calls read back.

A turn with a call of a known name and known arguments, an answer of the template, shows the parts.
"""

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ptrun.errors import UserError
from ptrun.readout.chat import Chat
from ptrun.task.conversation import ASSISTANT, Conversation, Turn

ID = "qzxcall12"
"""Stands for the id of a call, nine letters and digits, as some templates want them."""
ID_FORM = "[a-zA-Z0-9]{9}"
_NAME, _ARGUMENTS = "qzxname", {"qzxkey": "qzxvalue"}
_JSON = json.JSONDecoder()


@dataclass(frozen=True)
class CallForm:
    """The texts around the names and arguments of calls.

    Args:
        open: before the first name.
        between: between a name and its arguments, a JSON object.
        close: behind the last arguments.
        join: between arguments and the next name; None if a turn has one call.
        lead: what the template writes by itself before the first call, such as an empty thought.
        special: the special tokens of the tokenizer.
        names: the functions that are called.
        most: the calls that are read.

    >>> from ptrun.readout.calls import CallForm
    >>> form = CallForm("<call>", " ", "</call>", names=("f",))
    >>> form.read('It is <call>f {"a": 1}</call>')[1][0]["function"]
    {'name': 'f', 'arguments': '{"a": 1}'}
    """

    open: str
    between: str
    close: str
    join: str | None = None
    lead: str = ""
    special: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    most: int = 16

    @classmethod
    def of(cls, chat: Chat) -> "CallForm":
        """Return the form of a template; refuse one that writes calls in another way."""
        try:
            (one,) = chat.answers([_talk(1)])
            before, name, rest = one.partition(_NAME)
            place = _place(rest)
            if not name or _NAME in rest:
                raise UserError("it does not write the name of a function once, before the call")
            if place is None:
                raise UserError("it does not write arguments as JSON behind the name")
        except UserError as error:
            said = str(error).split(". ")[0].rstrip(".")
            raise UserError(
                f"tools: the chat template has no calls that this server can read ({said}). Send "
                'tool_choice "none" to get the text.'
            ) from error
        between, close = rest[: place[0]], rest[place[1] :]
        try:
            (two,) = chat.answers([_talk(2)])
        except UserError:
            two = ""
        first, last = one[: len(one) - len(close)], _NAME + rest
        fits = two.startswith(first) and two.endswith(last) and len(two) > len(first + last)
        join = two[len(first) : len(two) - len(last)] if fits else None
        tokens = chat.backbone.tokenizer().added_tokens_decoder.values()
        special = tuple(str(token) for token in tokens if token.special)
        form = cls(before, between, close, join, special=special)
        if chat.thinking == "drop":
            return form
        try:
            opened = cls.of(replace(chat, thinking="drop")).open
        except UserError:
            return form
        lead = before.removesuffix(opened) if opened else ""
        return replace(form, open=before[len(lead) :], lead=lead)

    def read(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """Return a text without its calls of known functions, and these calls as OpenAI's."""
        calls, kept, place = [], [], 0
        for start, end, call in self._found(text):
            calls.append(call)
            kept.append(self._words(text[place:start]))
            place = end
        return "\n".join(filter(None, (*kept, self._words(text[place:])))), calls[: self.most]

    def sure(self, text: str) -> str:
        """Return a text up to what may be the beginning of a call."""
        heads = self.open.split()[:1] or self.names
        starts = range(len(text) if self.open.strip() else 1)
        held = (i for i in starts for head in heads if _begins(text[i:], head))
        return self._words(text[: next(held, len(text))])

    def _found(self, text: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield where each call stands, and the call."""
        name = f"(?P<name>{'|'.join(map(re.escape, sorted(self.names, reverse=True)))})"
        head = name + _loosely(self.between)
        opening = re.compile((_loosely(self.open) or r"\A\s*") + head)
        joined, close = (
            re.compile(_loosely(self.join or "") + head),
            re.compile(_loosely(self.close)),
        )
        found = opening.search(text)
        while found:
            try:
                arguments, end = _JSON.raw_decode(text, found.end())
            except (ValueError, RecursionError):
                arguments, end = None, found.end()
            behind = close.match(text, end)
            following = joined.match(text, end) if self.join else None
            if isinstance(arguments, dict):
                last = following or behind
                number = (last and last.groupdict().get("id")) or uuid.uuid4().hex[:9]
                stop = behind.end() if behind and not following else end
                function = {"name": found["name"], "arguments": text[found.end() : end]}
                call = {"id": number, "type": "function", "function": function}
                yield found.start(), stop, call
            found = following or opening.search(text, behind.end() if behind else end)

    def _words(self, text: str) -> str:
        """Return a text without special tokens."""
        return self._special.sub("", text).strip()

    @cached_property
    def _special(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self.special)) or "(?!)")


def _talk(count: int) -> Conversation:
    """Return a conversation that ends with calls."""
    function = {"name": _NAME, "arguments": _ARGUMENTS}
    calls: list[dict[str, Any]] = [{"id": ID, "type": "function", "function": function}] * count
    answer: Turn = {"role": ASSISTANT, "content": "", "tool_calls": calls}
    return Conversation([{"role": "user", "content": "a"}], answer)


def _place(text: str) -> tuple[int, int] | None:
    """Return where the known arguments begin and end in a text."""
    for found in re.finditer("{", text):
        try:
            value, end = _JSON.raw_decode(text, found.start())
        except ValueError:
            continue
        if value == _ARGUMENTS:
            return found.start(), end
    return None


def _loosely(text: str) -> str:
    """Return a pattern of a text whose white space and ids may be others."""
    parts = re.split(r"(\s+)", text)
    words = "".join(r"\s*" if part.isspace() else re.escape(part) for part in parts)
    return words.replace(ID, f"(?P<id>{ID_FORM})", 1).replace(ID, ID_FORM)


def _begins(text: str, head: str) -> bool:
    return text.startswith(head) or head.startswith(text)
