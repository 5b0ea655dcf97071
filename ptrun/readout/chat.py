"""Conversations in a tokenizer's own form: its chat template.

Which tokens are learned, the template says itself (`{% generation %}`). If it does not, they are
what each turn of the assistant adds to the text before it.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError

Turns = Sequence[dict[str, str]]
_MARKED = re.compile(r"\{%-?\s*generation\b")
_ASSISTANT = "assistant"


class Chat:
    """Renders conversations for one backbone.

    Raises:
        UserError: its tokenizer has no template.
    """

    def __init__(self, backbone: PretrainedBackbone):
        self._name, self._tokenizer = backbone.name, backbone.tokenizer()
        if not getattr(self._tokenizer, "chat_template", None):
            raise UserError(
                f"backbone={backbone.name}: its tokenizer has no chat template, so a conversation "
                "has no form. Use an instruction-tuned model, or rows with a text and an answer."
            )

    def prompt(self, turns: Turns) -> list[int]:
        """Return the tokens after which the assistant writes."""
        return self._ids(self._text(turns, opened=True))

    def learned(self, turns: Turns) -> tuple[list[int], list[int]]:
        """Return the tokens of a conversation, and which of them the assistant wrote.

        Raises:
            UserError: the template does not say, and changes earlier turns; or there are none.
        """
        if _MARKED.search(self._tokenizer.chat_template):
            ids, places = self._marked(turns)
        else:
            ids, places = self._found(turns)
        if not places:
            raise UserError(
                f"backbone={self._name}: its chat template shows no token of the assistant, so a "
                "conversation teaches nothing. Correct the template, or use another model."
            )
        return ids, places

    @cached_property
    def ends(self) -> set[int]:
        """The special tokens that follow the assistant's text."""
        ids, places = self.learned([_turn("user", "a"), _turn(_ASSISTANT, "b")])
        special = set(self._tokenizer.all_special_ids)
        return {ids[i] for i in [*places, *range(places[-1], len(ids))] if ids[i] in special}

    def _marked(self, turns: Turns) -> tuple[list[int], list[int]]:
        shown = self._render(
            turns, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        mask = shown["assistant_masks"]
        return list(shown["input_ids"]), [i for i, own in enumerate(mask) if own]

    def _found(self, turns: Turns) -> tuple[list[int], list[int]]:
        """Return the tokens that the text gains with each turn of the assistant."""
        whole, spans = self._text(turns), []
        for place, turn in enumerate(turns):
            if turn["role"] != _ASSISTANT:
                continue
            before, after = self._text(turns[:place], opened=True), self._text(turns[: place + 1])
            if not (after.startswith(before) and whole.startswith(after.rstrip())):
                raise UserError(
                    f"backbone={self._name}: its chat template changes earlier turns and has no "
                    "{% generation %}, so the assistant's tokens are not known. Use another model, "
                    "or rows with a text and an answer."
                )
            spans.append((len(before), len(after.rstrip())))
        encoded = self._tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]
        places = [
            i
            for i, (start, end) in enumerate(offsets)
            if any(first <= start and end <= last and start < end for first, last in spans)
        ]
        return list(encoded["input_ids"]), places

    def _text(self, turns: Turns, *, opened: bool = False) -> str:
        text: str = self._render(turns, tokenize=False, add_generation_prompt=opened)
        return text

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _render(self, turns: Turns, **options: Any) -> Any:
        try:
            return self._tokenizer.apply_chat_template(list(turns), **options)
        except Exception as error:  # a template raises what its author wrote
            roles = ", ".join(turn["role"] for turn in turns)
            raise UserError(
                f"backbone={self._name}: its chat template refuses a conversation of {roles}: "
                f"{' '.join(str(error).split())[:160]}."
            ) from error


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
