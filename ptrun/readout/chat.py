"""Conversations in the form of a chat template: what is learned of each turn, and the prompt.

A turn of the assistant stands where the template marks it (`{% generation %}`), or where other
words in its place change the text, and ends with the special token behind it. What a template
writes by itself between the opened turn and an answer, such as an empty think block, is context.
"""

import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError, near, shown, warn_once
from ptrun.readout.rendering import CLOCK, RENDERER, Asked, Rendered, TemplateError
from ptrun.task.conversation import ASSISTANT, REASONING, TOOLS, UNLEARNED, Conversation, Turn
from ptrun.task.own_pattern import text_of

DATE = "2026-01-01"
"""What a template gets that asks for today's date."""
CHATML = (
    "{% for turn in messages %}{{ '<|im_start|>' + turn.role + '\n' }}"
    "{% if turn.role == 'assistant' %}{% generation %}{{ turn.content + END }}{% endgeneration %}"
    "{% else %}{{ turn.content + END }}{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The template `chatml`; END is `<|im_end|>`, or the end of a text if that is no token."""
_MOST_BYTES = 2**20  # of a template
_WORD = "qzxanswer"  # stands for words that are not known
_NOT_WRITTEN = "does not read it. Delete it from the rows, or type readout.chat_template=@FILE."
_FIRST_USER = "Type readout.system=first_user, or delete these turns."


def template_of(backbone: PretrainedBackbone, option: str | None = None) -> str:
    """Return a chat template: that of the tokenizer, or what `readout.chat_template` names.

    Of several templates of a tokenizer the one named `default` is used.
    """
    if option and ("{{" in option or "{%" in option):
        return option
    template = getattr(backbone.tokenizer(), "chat_template", None)
    several = template if isinstance(template, dict) else {"default": template or ""}
    if not (text := several.get(option or "default")):
        if option:
            listed = ["chatml", "@FILE", *(several if template else ())]
            raise UserError(
                f"readout.chat_template={option}{near(option, listed)}: no template of "
                f"backbone={backbone.name}; use {', '.join(listed)}."
            )
        if template:
            raise UserError(
                f"backbone={backbone.name}: its chat templates are {', '.join(several)}. Type "
                "readout.chat_template=NAME with one of them."
            )
        raise UserError(
            f"backbone={backbone.name}: its tokenizer has no chat template. Type "
            "readout.chat_template=chatml, or @FILE of one, or use an instruction-tuned model."
        )
    return str(text)


def stored_template(backbone: PretrainedBackbone, option: str) -> str:
    """Return what a run stores of `readout.chat_template`: a text, or the tokenizer's name of one.

    `@FILE` and `chatml` become their text.
    """
    if "{{" in option or "{%" in option:
        return option
    if option.startswith("@"):
        file = Path(option[1:]).expanduser()
        option = text_of(file, _MOST_BYTES, "too large for a chat template")
        if "{{" not in option and "{%" not in option:
            raise UserError(f"readout.chat_template=@{file}: no template; it writes the same text.")
    elif option == "chatml":
        tokenizer = backbone.tokenizer()
        end = tokenizer.eos_token or tokenizer.sep_token or ""
        end = "<|im_end|>" if "<|im_end|>" in tokenizer.get_vocab() else end
        option = CHATML.replace("END", repr(end))
    template_of(backbone, option)
    return option


def template_digest(backbone: PretrainedBackbone, readout: Mapping[str, Any]) -> str:
    """Return a hash (16 hex digits) of a chat template's text, and the date if it asks for one.

    `readout` is the configuration of a run's read-out.
    """
    text = template_of(backbone, readout.get("chat_template"))
    today = f" {readout.get('date', DATE)}" if CLOCK in text else ""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16] + today


@dataclass(frozen=True)
class ChatRow:
    """The tokens of a conversation.

    Args:
        prompt: those after which the assistant writes.
        ids: those of the whole conversation; empty without an answer.
        learned: the places of all learned tokens in `ids`.
        ends: the places of those that end a turn.
        answer: the first learned token of the answer.

    >>> from ptrun.readout.chat import ChatRow
    >>> ChatRow(prompt=[494], ids=[494, 487, 3], learned=[1, 2], ends=[2], answer=1).ids[1:]
    [487, 3]
    """

    prompt: list[int]
    ids: list[int]
    learned: list[int]
    ends: list[int]
    answer: int = 0


class _Span(NamedTuple):
    """Where a turn of the assistant stands in a text, and where its end token ends."""

    start: int
    end: int
    last: int


@dataclass(kw_only=True)
class Chat:
    """Renders conversations for one backbone.

    Args:
        backbone: its tokenizer has the template, if `template` names no other one.
        template: see `template_of`.
        turns: which turns of the assistant are learned: `all`, or the `last` one alone.
        thinking: what the template writes by itself before an answer is context and the prompt
            ends behind it (`drop`), or it is learned, written and scored (`keep`).
        system: the system's turn stays, or its text comes before the `first_user` turn's.
        date: what a template gets that asks for today's date, as YYYY-MM-DD.

    >>> from ptrun.readout.chat import Chat
    >>> from ptrun.task.conversation import Conversation
    >>> from ptrun.testing import read
    >>> form = "{% for turn in messages %}{{ turn.content }}[SEP]{% endfor %}"
    >>> chat = Chat(backbone=read("method=fine_tuning")[0].backbone, template=form)
    >>> chat.rows([Conversation([{"role": "user", "content": "It"}])])[0].prompt
    [494, 3]
    """

    backbone: PretrainedBackbone
    template: str | None = None
    turns: Literal["all", "last"] = "all"
    thinking: Literal["drop", "keep"] = "drop"
    system: Literal["turn", "first_user"] = "turn"
    date: str = DATE

    def __post_init__(self) -> None:
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            wrong = f"readout.date={self.date}: no day; expected one as {DATE}."
            raise UserError(wrong) from None

    def check(self) -> None:
        """Tell of a date, and of an answer without an end; refuse a date that is not read."""
        if not self.ends:
            warn_once(
                f"{self._named} writes no special token after an answer: none is learned, so texts "
                "may not end before readout.max_new_tokens"
            )
        if CLOCK in self._names:
            warn_once(
                f"the chat template asks for today's date: it gets {self.date} (readout.date)"
            )
        elif self.date != DATE:
            raise UserError(
                f"readout.date={self.date} changes nothing: {self._named} asks for no date. Leave "
                "it out."
            )

    @cached_property
    def ends(self) -> set[int]:
        """The special tokens that end a turn of the assistant."""
        ends, turn = set[int](), _turn("a")
        talks = [Conversation(_ASK, turn), Conversation([*_ASK, turn, *_ASK], turn)]
        talks += [Conversation(_ASK, _CALL)] * (self._form is not None)
        plain = replace(self, thinking="drop")
        for place, talk in enumerate(talks):
            try:
                (row,) = plain.rows([talk])
            except UserError:
                if not place:
                    raise
                continue  # a template may have no such conversations
            ends |= {row.ids[i] for i in row.ends}
        return ends & {*self._tokenizer.convert_tokens_to_ids(list(self._special_words))}

    def rows(self, talks: Sequence[Conversation], ids: Sequence[str] = ()) -> list[ChatRow]:
        """Return the tokens of conversations; `ids` are those of the examples, for errors."""
        prompts, rendered = self._rendered(talks, ids)
        rows = []
        pairs = zip(self._encoded(prompts), prompts, self._encoded(rendered), rendered, strict=True)
        for (opening, offsets), (_, cut), (tokens, places), (_, spans) in pairs:
            before = [i for i, (_, end) in zip(opening, offsets, strict=True) if end <= cut]
            learned = [
                (i, span)
                for i, (start, end) in enumerate(places)
                for span in spans
                if start < span.last and span.start < end and start < end
            ]
            ends = [i for i, span in learned if places[i][0] >= span.end]
            answer = next((i for i, span in learned if span is spans[-1]), 0)
            rows.append(ChatRow(before, tokens, [i for i, _ in learned], ends, answer))
        return rows

    def answers(self, talks: Sequence[Conversation]) -> list[str]:
        """Return what the assistant writes as the last turn, without the token that ends it."""
        _, rendered = self._rendered(talks, ())
        return [text[spans[-1].start : spans[-1].end] for text, spans in rendered]

    def _rendered(
        self, talks: Sequence[Conversation], ids: Sequence[str]
    ) -> tuple[list[tuple[str, int]], list[tuple[str, list[_Span]]]]:
        """Return the prompt of each conversation, and its text with the learned turns."""
        where = [f"{name}: " for name in ids] or [""] * len(talks)
        talks = [self._obeyed(*pair) for pair in zip(talks, where, strict=True)]
        every, _ = self._render([self._asked(talk) for talk in talks], where)
        prompts, rendered = [], []
        for talk, parts, place in zip(talks, every, where, strict=True):
            texts = {name: text for name, (text, _) in parts.items()}
            try:
                prompts.append(self._prompt(texts))
                # the context has another word in each turn
                written = {int(i) for i in re.findall(rf"{_WORD}(\d+)\.", texts["context"])}
                for i, turn in enumerate(talk.turns):
                    if turn["role"] != ASSISTANT and i not in written:
                        advice = _FIRST_USER if turn["role"] == "system" else "Delete the row."
                        told = f"turn {i + 1} (role {turn['role']})"
                        raise UserError(f"{told}: {self._named} does not write it. {advice}")
                spans = self._spans(talk, texts, parts["whole"][1]) if talk.answer else []
            except UserError as error:
                raise UserError(f"{place}{error}") from error
            rendered.append((texts["whole"] if talk.answer else "", spans))
        return prompts, rendered

    # What a conversation asks of the template.

    def _obeyed(self, talk: Conversation, where: str) -> Conversation:
        """Return a conversation as the template reads it; refuse what it does not read."""
        for name in sorted(talk.variables.keys() - self._names):
            key = name if name == TOOLS else f"chat_template_kwargs.{name}"
            raise UserError(f"{where}{key}: {self._named} {_NOT_WRITTEN}")
        turns = [*talk.turns, *([talk.answer] if talk.answer else [])]
        later = next((i for i, turn in enumerate(turns) if i and turn["role"] == "system"), 0)
        if self.system == "first_user" and later:
            told = "the system's, and readout.system=first_user moves the first alone. Delete it."
            raise UserError(f"{where}turn {later + 1} is {told}")
        if self.system == "first_user" and turns[0]["role"] == "system":
            user = next((i for i, turn in enumerate(turns) if turn["role"] == "user"), None)
            if user is None:
                raise UserError(f"{where}readout.system=first_user: no turn is the user's.")
            text = f"{turns[0]['content']}\n\n{turns[user]['content']}".strip()
            turns = [*turns[1:user], {**turns[user], "content": text}, *turns[user + 1 :]]
        obeyed = []
        for turn in turns:
            turn = dict(turn)
            if word := self._special.search(turn["content"]):
                warn_once(
                    f"a turn holds {shown(word[0].strip())}, which is read as the special "
                    "token: it ends a turn there. Write it in another way if it is text"
                )
            if thought := turn.pop(REASONING[0], None):
                if not self._reads_reasoning:
                    raise UserError(f"{where}{REASONING[0]}: {self._named} {_NOT_WRITTEN}")
                turn |= dict.fromkeys(REASONING, thought)
            if "tool_calls" in turn:
                if self._form is None:
                    raise UserError(f"{where}tool_calls: {self._named} {_NOT_WRITTEN}")
                turn |= _in_form(turn, *self._form)
            obeyed.append(turn)
        answer = obeyed.pop() if talk.answer else None
        return Conversation(obeyed, answer, talk.variables)

    def _asked(self, talk: Conversation) -> Asked:
        """Return what is rendered, by name: see `_spans`."""
        turns = [{k: v for k, v in turn.items() if k != UNLEARNED} for turn in talk.turns]
        whole = [*turns, talk.answer or _turn(_WORD)]
        texts = {"other": ([*turns, _turn(_WORD)], False), "opened": (turns, True)}
        context = [
            turn if turn["role"] == ASSISTANT else {**turn, "content": f"{_WORD}{i}."}
            for i, turn in enumerate(whole)
        ]
        texts |= {"context": (context, False), "whole": (whole, False)}
        for i, turn in enumerate(whole if talk.answer else ()):
            if turn["role"] != ASSISTANT:
                continue
            changes: dict[str, dict[str, Any]] = {"content": {"content": _WORD}}
            if REASONING[0] in turn:
                changes["reasoning"] = dict.fromkeys(REASONING, _WORD)
            calls = turn.get("tool_calls", [])
            if calls:
                each = [
                    [*calls[:j], _changed(calls[j]), *calls[j + 1 :]] for j in range(len(calls))
                ]
                changes = {f"call {j} of": {"tool_calls": other} for j, other in enumerate(each)}
            for key, change in changes.items():
                texts[f"{key} {i}"] = ([*whole[:i], {**turn, **change}, *whole[i + 1 :]], False)
            if i:
                texts[f"before {i}"] = (whole[:i], True)
            if calls:
                texts[f"after {i}"] = (whole[: i + 1], False)
                texts[f"plain {i}"] = ([*whole[:i], _turn(_WORD)], False)
        return {**self._tokens, **talk.variables}, texts

    # Where the turns of the assistant stand.

    def _prompt(self, texts: Mapping[str, str]) -> tuple[str, int]:
        """Return a text, and where the prompt of the answer ends in it."""
        opened, other = texts["opened"], texts["other"]
        if self.thinking == "keep":
            return opened, len(opened.rstrip(" "))
        if (around := _around(other)) is None:
            raise UserError(
                f"{self._named} does not write the words of the assistant as they are, so a "
                "conversation teaches nothing. Correct it, or type readout.chat_template=@FILE."
            )
        return other, self._begin(around[0], opened)

    def _begin(self, before: str, opened: str) -> int:
        """Return where an answer begins: white space behind the opened turn is its own.

        So is a space at its end, which is a part of the next word's token.
        """
        gap = before[len(opened) :] if before.startswith(opened) else self._plain[0]
        end = len(before) - len(gap if not gap.strip() and before.endswith(gap) else "")
        return len(before[:end].rstrip(" "))

    def _spans(
        self, talk: Conversation, texts: Mapping[str, str], marks: Sequence[tuple[int, int]]
    ) -> list[_Span]:
        """Return where the learned turns stand in the text of a conversation.

        `texts` has the `whole` one, those with another `content`, `reasoning` or `call` of a turn,
        and those of the turns up to it: `before`, `after`, and with a `plain` one in its place.
        """
        text, turns = texts["whole"], [*talk.turns, talk.answer or {}]
        answers = [i for i, turn in enumerate(turns) if turn["role"] == ASSISTANT]
        marked = dict(zip(answers, marks, strict=True)) if len(marks) == len(answers) else {}
        spans = []
        for i in answers:
            turn, is_last, opened = turns[i], i == answers[-1], texts.get(f"before {i}", "")
            for j in range(len(turn.get("tool_calls", []))):
                if texts[f"call {j} of {i}"] == text:
                    where = f"call {j + 1} of turn {i + 1}"
                    raise UserError(f"{where}: {self._named} {_NOT_WRITTEN}")
            if turn.get(UNLEARNED) or (self.turns == "last" and not is_last):
                continue
            start, end = (self._call if "tool_calls" in turn else self._content)(i, texts)
            if is_last:
                head, cut = self._prompt(texts)
                thinks = self.thinking == "drop" and _WORD in texts.get(f"reasoning {i}", "")
                start = cut if text.startswith(head[:cut]) and not thinks else -1
            elif self.thinking == "keep" and opened and text.startswith(opened):
                start = len(opened.rstrip(" "))
            if i in marked:
                first, last = marked[i]
                start = start if start >= 0 or is_last else first
                end = min(end, last) if end >= 0 else first + len(self._body(text[first:last]))
            if start < 0 or end < start:
                raise UserError(self._otherwise(i, texts, is_last=is_last and start < 0))
            words = [turn[key] or "" for key in ("content", REASONING[0]) if key in turn]
            if any("".join(w.split()) not in "".join(text[start:end].split()) for w in words):
                warn_once(
                    f"{self._named} leaves out words of the assistant, such as its thoughts; they "
                    "are not learned"
                )
            ended = self._special.match(text, end)
            last = ended.end() if ended else end
            if not ended and text.startswith(self._plain[1], end):  # an end of letters
                last = end + len(self._plain[1])
            spans.append(_Span(start, end, last))
        return spans

    def _content(self, i: int, texts: Mapping[str, str]) -> tuple[int, int]:
        """Return where a turn's words begin and end, as other words in their place show."""
        text, around = texts["whole"], _around(texts[f"content {i}"])
        if around is None:
            return -1, -1
        before, _ = _around(texts.get(f"reasoning {i}", "")) or around
        start = self._begin(before, texts.get(f"before {i}", ""))
        end = len(text) - len(around[1])
        return start if text.startswith(before) else -1, end if text.endswith(around[1]) else -1

    def _call(self, i: int, texts: Mapping[str, str]) -> tuple[int, int]:
        """Return where a turn with calls stands: what it adds to a shorter conversation."""
        text, after, opened = texts["whole"], texts[f"after {i}"], texts.get(f"before {i}", "")
        pairs = enumerate(zip(text, texts[f"call 0 of {i}"], strict=False))
        differs = next((place for place, (a, b) in pairs if a != b), 0)
        plain, _ = _around(texts[f"plain {i}"]) or (opened, "")
        for before in [plain, opened] if self.thinking == "drop" else [opened, plain]:
            part = self._body(after[len(before) :]) if after.startswith(before) else ""
            start = text.rfind(part, max(0, differs - len(part)), differs + len(part))
            if part and 0 <= start <= differs:
                return start, start + len(part)
        return -1, -1

    def _body(self, text: str) -> str:
        """Return what an assistant writes without the end of its turn and what follows it."""
        rest, text = self._plain[1], text.rstrip()
        ends = [rest[match.start() :] for match in self._special.finditer(rest)]
        return text.removesuffix(next(filter(text.endswith, [*ends, *self._special_words]), ""))

    def _otherwise(self, i: int, texts: Mapping[str, str], *, is_last: bool) -> str:
        """Return why a turn is not found, and what to type; the last one has another beginning."""
        if not is_last:
            return (
                f"turn {i + 1}: {self._named} writes it in another way than as a last turn, so its "
                "tokens are not known. Type readout.turns=last, which learns the last turn alone."
            )
        usual, other = "one of words alone (reasoning, or a call)", "keep"
        head = texts["opened"]
        if self.thinking == "keep":
            usual, other = f"the turn that it opens ({shown(head[-20:])})", "drop"
            head, _ = _around(texts["other"]) or ("", "")
        fits = texts["whole"].startswith(head.rstrip(" "))
        advice = f"Type readout.thinking={other}." if fits else "Delete the row."
        return f"{self._named} begins this answer in another way than {usual}. {advice}"

    # The template and its tokenizer.

    @cached_property
    def text(self) -> str:
        """The template."""
        return template_of(self.backbone, self.template)

    @property
    def _named(self) -> str:
        return f"the chat template of backbone={self.backbone.name}"

    @cached_property
    def _tokenizer(self) -> Any:
        return self.backbone.tokenizer()

    @cached_property
    def _tokens(self) -> dict[str, str]:
        return {key: str(value) for key, value in self._tokenizer.special_tokens_map.items()}

    @cached_property
    def _special_words(self) -> tuple[str, ...]:
        """The special tokens that may end a turn, as text."""
        added = self._tokenizer.added_tokens_decoder.items()
        special = {i for i, token in added if token.special} | {*self._tokenizer.all_special_ids}
        if self._tokenizer.bos_token_id != self._tokenizer.eos_token_id:
            special -= {self._tokenizer.bos_token_id}
        return tuple(filter(None, self._tokenizer.convert_ids_to_tokens(sorted(special))))

    @cached_property
    def _special(self) -> re.Pattern[str]:
        return re.compile(rf"\s*(?:{'|'.join(map(re.escape, self._special_words)) or '(?!)'})")

    @cached_property
    def _names(self) -> set[str]:
        """The names that the template reads."""
        return self._render([({}, {})], [""])[1]

    def _probe(self, *turns: Turn, opened: bool = False) -> str:
        """Return the text of a conversation; empty if the template has none of the kind."""
        try:
            (texts,), _ = self._render([(self._tokens, {"it": (turns, opened)})], [""])
        except UserError:
            return ""
        return texts["it"][0]

    @property
    def added(self) -> str:
        """What the prompt of an answer has behind the turn that the template opens."""
        return self._plain[0] if self._plain[0].strip() and self.thinking == "drop" else ""

    @cached_property
    def _plain(self) -> tuple[str, str]:
        """What stands between the opened turn and a last answer of words alone, and behind it."""
        before, _, behind = self._probe(*_ASK, _turn(_WORD)).partition(_WORD)
        opened = self._probe(*_ASK, opened=True)
        return before[len(opened) :] if before.startswith(opened) else "", behind.rstrip()

    @cached_property
    def _reads_reasoning(self) -> bool:
        """Whether the template writes what the assistant thinks, at least before a call."""
        thought = dict.fromkeys(REASONING, _WORD)
        turns = [_turn("a"), *([_in_form(_CALL, *self._form)] if self._form else ())]
        return any(_WORD in self._probe(*_ASK, turn | thought) for turn in turns)

    @cached_property
    def _form(self) -> tuple[str | None, bool] | None:
        """The content of a turn of calls alone, and whether arguments are text; None: no calls."""
        for form in product(("", None), (False, True)):
            call = _in_form(_CALL, *form)
            text = self._probe(*_ASK, call)
            other = call | {"tool_calls": [*map(_changed, call["tool_calls"])]}
            if text and text != self._probe(*_ASK, other):
                return form
        return None

    def _encoded(
        self, texts: Sequence[tuple[str, Any]]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the tokens of each text, and where each token stands in it."""
        options = {"add_special_tokens": False, "return_offsets_mapping": True}
        encoded = self._tokenizer([text for text, _ in texts], **options)
        return list(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True))

    def _render(
        self, asked: Sequence[Asked], where: Sequence[str]
    ) -> tuple[list[dict[str, Rendered]], set[str]]:
        """Return the texts of each conversation by name, and the names that the template reads."""
        try:
            return RENDERER.render(self.text, self.date, asked)
        except TemplateError as error:
            turns, _ = next(iter(asked[error.place][1].values()), ([], False))
            roles = [turn["role"] for turn in turns]
            advice = f" {_FIRST_USER}" if "system" in roles else ""
            refused = f"refuses a conversation of {', '.join(roles)}" if roles else "cannot be read"
            told = f"{where[error.place]}{self._named} {refused}: {str(error).rstrip('.')}."
            raise UserError(f"{told}{advice}") from error


def _turn(content: str) -> Turn:
    return {"role": ASSISTANT, "content": content}


_ASK: Sequence[Turn] = [{"role": "user", "content": "a"}]
_CALL: Turn = _turn("") | {
    "tool_calls": [
        {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    ]
}


def _in_form(turn: Turn, content: str | None, as_text: bool) -> Turn:
    """Return a turn with calls in the form that the template reads: see `Chat._form`."""
    functions = [call["function"] for call in turn["tool_calls"]]
    arguments = [f["arguments"] for f in functions]
    if as_text:
        arguments = [json.dumps(value, ensure_ascii=False) for value in arguments]
    triples = zip(turn["tool_calls"], functions, arguments, strict=True)
    calls = [{**call, "function": {**f, "arguments": value}} for call, f, value in triples]
    return {**turn, "content": turn["content"] or content, "tool_calls": calls}


def _changed(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with other arguments, an object or text."""
    function, other = call["function"], {_WORD: _WORD}
    arguments = json.dumps(other) if isinstance(function["arguments"], str) else other
    return {**call, "function": {**function, "arguments": arguments}}


def _around(text: str) -> tuple[str, str] | None:
    """Return what stands before and behind the word for an unknown answer; None if not once."""
    before, word, behind = text.partition(_WORD)
    return (before, behind) if word and _WORD not in behind else None
