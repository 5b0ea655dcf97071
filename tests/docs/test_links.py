"""No link of the documentation is dead, and each page is in the navigation."""

import re

import pytest
import yaml

from tests.docs.pages import DOCS, ROOT, pages, source
from tests.docs.pages import text as filled

LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def text(page):
    """Return a page; what the program writes has links and headings in these folders alone."""
    return filled(page) if page.startswith(("reproduce/", "reference/")) else source(page)


def slugs(page):
    """Return the anchors of a page, as Python-Markdown makes them of headings."""
    lines = FENCE.sub("", text(page)).splitlines()
    heads = [line.lstrip("#").strip() for line in lines if re.match(r"#+ ", line)]
    plain = [re.sub(r"[^\w\s-]", "", head.lower()).strip() for head in heads]
    return {re.sub(r"[-\s]+", "-", head) for head in plain}


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page):
    for target in LINK.findall(FENCE.sub("", text(page))):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (DOCS / page).parent / path if path else DOCS / page
        assert file.is_file(), f"{page}: {target}"
        if anchor and not anchor.startswith("ptrun."):
            other = str(file.resolve().relative_to(DOCS))
            assert anchor in slugs(other), f"{page}: {target}; there are {slugs(other)}"


def listed(nav):
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else listed(value)


def test_the_navigation_lists_every_page_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert sorted(listed(nav)) == pages()


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_repository_lead_somewhere(file):
    for target in LINK.findall((ROOT / file).read_text()):
        if not target.startswith("http"):
            assert (ROOT / target.partition("#")[0]).exists(), f"{file}: {target}"
