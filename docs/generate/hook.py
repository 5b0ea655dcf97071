"""What MkDocs calls while it builds the site (`hooks` in mkdocs.yml)."""

import html
import json
import re
from pathlib import Path
from typing import Any

from site_pages import expand


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what the program makes."""
    return expand(markdown)


def on_post_build(config: dict[str, Any], **_: Any) -> None:
    """Write the entries of the search as a script too: a page on the disk may not read JSON."""
    folder = Path(config["site_dir"]) / "search"
    entries = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))["docs"]
    plain = [{key: _words(own[key]) for key in ("location", "title", "text")} for own in entries]
    (folder / "entries.js").write_text(f"window.searchEntries = {json.dumps(plain)};\n")


def _words(text: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())
