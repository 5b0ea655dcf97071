"""Questions with their contexts as pairs of texts: one row each, or overlapping windows."""

from collections.abc import Sequence
from typing import Any


def paired(
    tokenizer: Any,
    asked: Sequence[str],
    contexts: Sequence[str],
    room: int,
    *,
    stride: int | None = None,
) -> Any:
    """Tokenize questions with their contexts, offsets told; a question has half a row at most.

    A context that is too long is cut, or with `stride` read on in further rows, which share at most
    so many tokens.
    """
    around = tokenizer.num_special_tokens_to_add(pair=True)
    longest = min(room // 2, room - around - 1)
    on: dict[str, Any] = {}
    if stride is not None:
        shared = min(stride, 3 * (room - around - longest) // 4)
        on = {"stride": shared, "return_overflowing_tokens": True}
    return tokenizer(
        _shortened(tokenizer, asked, longest),
        list(contexts),
        truncation="only_second",
        max_length=room,
        return_offsets_mapping=True,
        **on,
    )


def after_space(context: str, start: int, end: int) -> int:
    """Return where a token starts without the space that some tokenizers count to it."""
    while start < end and context[start].isspace():
        start += 1
    return start


def _shortened(tokenizer: Any, texts: Sequence[str], longest: int) -> list[str]:
    """Return texts without spaces before them, cut to a number of tokens."""
    bare = [text.lstrip() for text in texts]
    given = tokenizer(bare, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return [
        text if len(places) <= longest else text[: min(places[longest][0], places[longest - 1][1])]
        for text, places in zip(bare, given["offset_mapping"], strict=True)
    ]
