"""The messages of the troubleshooting page are those of the code."""

import ast
import re

import pytest

from tests.docs.pages import ROOT, source

MESSAGES = re.findall(r"^### `(.+)`$", source("troubleshooting.md"), re.MULTILINE)


def spelled(node):
    """Return a string constant or f-string, with `…` for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sdg]", "…", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
    return ""


@pytest.fixture(scope="module")
def code():
    texts = set()
    for file in (ROOT / "ptrun").rglob("*.py"):
        texts |= {spelled(node) for node in ast.walk(ast.parse(file.read_text("utf-8")))}
    return "\n".join(" ".join(text.split()) for text in sorted(texts))


def test_there_are_thirty_entries():
    assert len(MESSAGES) >= 30 and len(set(MESSAGES)) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_code_prints_it(message, code):
    assert message in code
