"""What MkDocs calls while it builds the site (`hooks` in mkdocs.yml)."""

from typing import Any

from site_pages import expand

from ptrun.ledger import plots


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what the program makes."""
    return expand(markdown)


def on_page_context(context: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Hand the colours of the drawings to the theme."""
    context["drawing_style"] = plots.style()
    return context
