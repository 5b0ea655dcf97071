"""Text of somebody else for a terminal, which would obey its control characters."""

import re
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return text whose control characters are written out: an escape becomes four letters."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def readable(text: str) -> str:
    """Return text whose control characters are written out, except line breaks."""
    return "\n".join(map(visible, text.split("\n")))


def plain_json(text: str) -> str:
    """Return JSON whose control characters are escaped, as JSON may: the content is the same."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def all_readable(content: Any) -> Any:
    """Return plain data whose texts are readable, keys included."""
    if isinstance(content, str):
        return readable(content)
    if isinstance(content, dict):
        return {all_readable(key): all_readable(value) for key, value in content.items()}
    return [all_readable(one) for one in content] if isinstance(content, list) else content
