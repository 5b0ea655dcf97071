"""Questions paired with their contexts: one row each, or overlapping windows."""

from collections.abc import Sequence
from typing import Any


def paired(
    tokenizer: Any, questions: Sequence[str], contexts: Sequence[str], room: int, stride: int = 0
) -> Any:
    """Tokenize questions with their contexts, with offsets; a question has at most half a row.

    A context that is too long is cut, or with `stride` continued in further rows, which share at
    most that many tokens.
    """
    around = tokenizer.num_special_tokens_to_add(pair=True)
    longest = min(room // 2, room - around - 1)
    windows: dict[str, Any] = {}
    if stride:
        shared = min(stride, 3 * (room - around - longest) // 4)
        windows = {"stride": shared, "return_overflowing_tokens": True}
    return tokenizer(
        _shortened(tokenizer, questions, longest),
        list(contexts),
        truncation="only_second",
        max_length=room,
        return_offsets_mapping=True,
        **windows,
    )


def after_space(context: str, start: int, end: int) -> int:
    """Return where a token starts without its leading space, which some tokenizers include."""
    return end - len(context[start:end].lstrip())


def _shortened(tokenizer: Any, texts: Sequence[str], longest: int) -> list[str]:
    """Return texts without leading spaces, cut to a number of tokens."""
    bare = [text.lstrip() for text in texts]
    rows = tokenizer(bare, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return [
        text if len(places) <= longest else text[: min(places[longest][0], places[longest - 1][1])]
        for text, places in zip(bare, rows["offset_mapping"], strict=True)
    ]
