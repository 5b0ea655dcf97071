"""Every command and code block of the documentation works.

A block is executed, page by page, in an empty folder. One marked `<!-- doc: compose -->` needs a
GPU, the hub or data: its commands are parsed, composed and checked against the task and backbone.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.composing import compose
from tests.docs.pages import ROOT, blocks, pages, source, text
from tests.tiers import tiered

PAGES = [page for page in pages() if blocks(source(page)) or "make: paper" in source(page)]
EXECUTED = [p for p in PAGES if any(not b.how and b.language == "bash" for b in blocks(source(p)))]
FIRST = ("index.md", "start.md", "howto/data.md", "howto/compare.md", "methods/ptuning_v2.md")
"""Pages that the core tests compose."""
KNOWN = {"bash", "python", "yaml", "json", "text"}


def write_files(found):
    for block in found:
        if block.title:
            file = Path(block.title)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.code, encoding="utf-8")


@pytest.mark.parametrize("page", tiered(PAGES, core=lambda page: page in FIRST))
def test_every_command_composes(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = blocks(text(page) if "make: paper" in source(page) else source(page))
    write_files(found)
    for block in found:
        if block.language == "bash":
            for line in block.lines:
                compose(line)


def test_the_commands_of_the_readme_compose(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = [line for b in found for line in b.lines if line.startswith(("ptrun ", "make "))]
    assert len(lines) >= 10
    for line in lines:
        compose(line)


def documented():
    """Return the command lines of README and of all pages."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = [*blocks(readme), *(block for page in PAGES for block in blocks(source(page)))]
    return [line for block in found if block.language == "bash" for line in block.lines]


def test_bash_and_zsh_pass_every_line_on_as_it_is_printed():
    """Both expand {a,b}; zsh refuses [a,b], * and ? without quotes if no file fits them."""
    lines = [line for line in documented() if not re.search(r"[|<>;&$]", line)]
    script = "".join(f"printf '%s\\0' {line}\nprintf '\\n'\n" for line in lines)
    passed = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    for line, words in zip(lines, passed.decode().split("\n"), strict=False):
        assert words.split("\0")[:-1] == shlex.split(line, comments=True), line
        bare = re.sub(r"'[^']*'|\"[^\"]*\"|(^| )#.*", "", line)
        assert not re.search(r"[\[\]{}*?]", bare), line
    assert len(lines) > 90


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED)
def test_a_page_runs_from_an_empty_folder(page, tmp_path, monkeypatch, warm):
    monkeypatch.chdir(tmp_path)
    found = blocks(source(page))
    write_files(found)
    for block in found:
        if block.how == "compose":
            continue
        if block.language == "bash":
            for line in block.lines:
                done = warm.run(shlex.split(line, comments=True)[1:], tmp_path)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        elif block.language == "python" and "/" not in block.title:
            subprocess.run([sys.executable, block.title], check=True, cwd=tmp_path)
    if page == "start.md":
        check_start(tmp_path)


def check_start(folder):
    """The start ends with five answers; the keys of its result are in the reference."""
    answers = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    assert [set(answer) for answer in answers] == [{"id", "prediction", "probability"}] * 5
    (file,) = folder.rglob("result.json")
    result, shown = json.loads(file.read_text()), text("reference/result.md")
    assert not [key for key in (*result, *result["manifest"]) if f"`{key}`" not in shown]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p not in EXECUTED and "slow" in source(p)])
def test_slow_blocks_run(page, tmp_path, warm):
    for block in blocks(source(page)):
        for line in block.lines if block.how == "slow" else []:
            done = warm.run(shlex.split(line, comments=True)[1:], tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def test_the_start_page_needs_at_most_six_commands():
    commands = [line for b in blocks(source("start.md")) if not b.how for line in b.lines]
    assert len([line for line in commands if line.startswith("ptrun")]) <= 6


@pytest.mark.parametrize("page", PAGES)
def test_blocks_have_a_known_language_and_mark(page):
    for block in blocks(source(page)):
        assert block.language in KNOWN and block.how in ("", "slow", "compose"), block
        assert block.language != "python" or block.title, "a Python block names its file"
        if block.language == "yaml":
            yaml.safe_load(block.code)


def test_no_block_escapes_the_tests():
    for page in pages():
        fences = sum(line.startswith("```") for line in source(page).splitlines())
        assert fences == 2 * len(blocks(source(page))), page
