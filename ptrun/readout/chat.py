"""Conversations in a tokenizer's own form: its chat template.

Which tokens are learned, the template says itself (`{% generation %}`). If it does not, they are
what each turn of the assistant adds to the text before it. What a template writes by itself before
an answer, such as an empty think block, is part of the prompt.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError, warn_once
from ptrun.readout.rendering import CLOCK, RENDERER, Asked, Rendered, TemplateError, Turns

DATE = "2026-01-01"
"""What a template gets that asks for today's date."""
_MARKED = re.compile(r"\{%-?\s*generation\b")
_ASSISTANT = "assistant"
_ANSWER = "qzxanswer"  # stands for an answer that is not known
_PROBE = [{"role": "user", "content": "a"}], _ANSWER


def template_of(backbone: PretrainedBackbone) -> str:
    """Return the chat template of a backbone's tokenizer; of several the one named `default`."""
    template = getattr(backbone.tokenizer(), "chat_template", None)
    if isinstance(template, dict):
        if "default" not in template:
            raise UserError(
                f"backbone={backbone.name}: its chat templates are {', '.join(template)}; expected "
                "one that is named default."
            )
        template = template["default"]
    if not template:
        raise UserError(
            f"backbone={backbone.name}: its tokenizer has no chat template, so a conversation "
            "has no form. Use an instruction-tuned model, or rows with a text and an answer."
        )
    return str(template)


def template_digest(backbone: PretrainedBackbone, readout: Mapping[str, Any]) -> str:
    """Return a hash (16 hex digits) of a chat template's text, and the date if it asks for one.

    `readout` is the configuration of a run's read-out.
    """
    text = template_of(backbone)
    today = f" {readout.get('date', DATE)}" if CLOCK in text else ""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16] + today


class Chat:
    """Renders conversations for one backbone.

    Args:
        backbone: its tokenizer has the template.
        date: what a template gets that asks for today's date, as YYYY-MM-DD.

    >>> from ptrun.testing import read
    >>> from ptrun.readout.chat import Chat
    >>> method, batch, output = read("method=fine_tuning")
    >>> template = "{% for turn in messages %}{{ turn.content }}[SEP]{% endfor %}"
    >>> method.backbone.tokenizer().chat_template = template
    >>> Chat(method.backbone).rows([([{"role": "user", "content": "It"}], "is")])[0]
    ([494, 3], [494, 3, 487, 3], [2, 3])
    """

    def __init__(self, backbone: PretrainedBackbone, date: str = DATE):
        self._name, self._tokenizer = backbone.name, backbone.tokenizer()
        self._template = template_of(backbone)
        self._marks = bool(_MARKED.search(self._template))
        self._end, self.reads_clock = "", False
        names = self._tokenizer.special_tokens_map.items()
        self._names = {key: str(value) for key, value in names} | {"date": date}
        added = self._tokenizer.added_tokens_decoder.items()
        special = {i for i, token in added if token.special} | {*self._tokenizer.all_special_ids}
        if self._marks:  # what ends the answer may stand behind the mark
            ((*_, (text, spans)),) = self._render([self._asked(*_PROBE)], ())
            written = map(re.escape, self._tokenizer.convert_ids_to_tokens(sorted(special)))
            behind = text[spans[-1][1] :] if spans else ""
            end = re.match(rf"\s*(?:{'|'.join(written)})", behind)
            self._end = end[0] if end else ""
        ((_, ids, learned),) = self.rows([_PROBE])
        self.ends = {ids[i] for i in [*learned, *range(learned[-1], len(ids))]} & special
        """The special tokens that follow the assistant's text."""
        if not self.ends & {ids[i] for i in learned}:
            warn_once(
                f"the chat template of backbone={self._name} writes no special token after an "
                "answer: none is learned, so texts may not end before readout.max_new_tokens"
            )
        if self.reads_clock:
            warn_once(f"the chat template asks for today's date: it gets {date} (readout.date)")
        elif date != DATE:
            raise UserError(
                f"readout.date={date} changes nothing: the chat template of backbone={self._name} "
                "asks for no date. Leave it out."
            )

    def rows(
        self, conversations: Sequence[tuple[Turns, str | None]], ids: Sequence[str] = ()
    ) -> list[tuple[list[int], list[int], list[int]]]:
        """Return the tokens of conversations.

        Of each: the prompt, after which the assistant writes; the conversation with its answer,
        and the places of all tokens there that the assistant wrote. Without an answer both are
        empty.

        Args:
            conversations: turns, and the assistant's answer to them if it is known.
            ids: of the examples, for errors.
        """
        texts = self._render([self._asked(*conversation) for conversation in conversations], ids)
        prompts = []
        for (opened, _), (hidden, _), (answered, _), *_ in texts:
            added = _added(hidden, answered)  # the prompt ends where an answer would begin
            prompts.append((opened + added + _ANSWER * bool(added), len(opened + added)))
        rendered = [self._spans(parts) if len(parts) > 3 else ("", []) for parts in texts]
        before = [
            [i for i, (_, last) in zip(row, offsets, strict=True) if last <= end]
            for (row, offsets), (_, end) in zip(self._encoded(prompts), prompts, strict=True)
        ]
        rows = []
        pairs = zip(before, self._encoded(rendered), rendered, strict=True)
        for prompt, (tokens, offsets), (_, spans) in pairs:
            places = [
                i
                for i, (start, end) in enumerate(offsets)
                if any(begin <= start and end <= last and start < end for begin, last in spans)
            ]
            if tokens and not places:
                raise UserError(
                    f"backbone={self._name}: its chat template shows no token of the assistant, so "
                    "a conversation teaches nothing. Correct the template, or use another model."
                )
            rows.append((prompt, tokens, places))
        return rows

    def _asked(self, turns: Turns, answer: str | None) -> Asked:
        """Return what is rendered to find the prompt and the answers of a conversation.

        The second conversation has other words for the answers, which tells what the template adds.
        """
        count = len(turns)
        places = [place for place, turn in enumerate(turns) if turn["role"] == _ASSISTANT]
        hidden = [_turn(_ANSWER) if place in places else turn for place, turn in enumerate(turns)]
        cuts = [(0, count, True), (1, count, True), (1, count + 1, False)]
        if answer is None:
            return [turns, [*hidden, _turn(_ANSWER)]], cuts
        each = [(i, p + n, n == 0) for p in places for i in (0, 1) for n in (0, 1)]
        cuts += [*([] if self._marks else each), (0, count + 1, False)]
        return [[*turns, _turn(answer)], [*hidden, _turn(_ANSWER)]], cuts

    def _spans(self, texts: Sequence[Rendered]) -> Rendered:
        """Return the text of a conversation, and where the answers stand, each with its end."""
        (opened, _), (hidden, _), (answered, marked), *parts, (text, spans) = texts
        if self._marks:
            added = [_added("", answered[start:end]) for start, end in marked]
        else:
            each = [part for part, _ in parts] + [opened, text, hidden, answered]
            spans, added = [], []
            for before, after, *without in zip(*(iter(each),) * 4, strict=True):
                if not (after.startswith(before) and text.startswith(after.rstrip())):
                    raise UserError(
                        f"backbone={self._name}: its chat template writes an earlier turn in "
                        "another way than the last one and has no {% generation %}, so which "
                        "tokens are answers is not known. Give rows with one answer, or use "
                        "another model."
                    )
                spans.append((len(before), len(after.rstrip())))
                added.append(_added(*without))
        return text, [
            (
                start + len(more) * text.startswith(more, start),
                last + len(self._end) * text.startswith(self._end, last),
            )
            for (start, last), more in zip(spans, added, strict=True)
        ]

    def _encoded(
        self, texts: Sequence[tuple[str, Any]]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the tokens of each text, and where each token stands in it."""
        options = {"add_special_tokens": False, "return_offsets_mapping": True}
        encoded = self._tokenizer([text for text, _ in texts], **options)
        return list(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True))

    def _render(self, asked: Sequence[Asked], ids: Sequence[str]) -> list[list[Rendered]]:
        try:
            texts, clock = RENDERER.render(self._template, self._names, asked)
        except TemplateError as error:
            roles = ", ".join(turn["role"] for turn in asked[error.place][0][0])
            row = f"{ids[error.place]}: " if ids else ""
            raise UserError(
                f"{row}the chat template of backbone={self._name} refuses a conversation of "
                f"{roles}: {error}."
            ) from error
        self.reads_clock = self.reads_clock or clock
        return texts


def _turn(content: str) -> dict[str, str]:
    return {"role": _ASSISTANT, "content": content}


def _added(before: str, after: str) -> str:
    """Return what a template writes by itself before an answer that is hidden.

    White space belongs to the answer, as that between `[/INST]` and its first word.
    """
    written = after[len(before) :] if after.startswith(before) else ""
    added, answer, _ = written.partition(_ANSWER)
    return added if answer and added.strip() else ""
