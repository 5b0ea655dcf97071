"""The page: whole, safe, and alone; in Chromium it sorts and fits a phone."""

import html
import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from ptrun.papers.paper import write
from ptrun.reporting.formats import MINUS, NONE
from tests.papers.small import filled

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
VOID = {"meta", "link", "img"}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    table = filled(folder)
    write([table], folder / "again")
    write([table], folder / "to")
    content = (folder / "to" / "index.html").read_text()
    assert content == (folder / "again" / "index.html").read_text(), "the same bytes each time"
    return content


class Reader(HTMLParser):
    """Keeps what is open, every attribute, and the texts outside of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)


def test_names_and_texts_of_strangers_are_escaped(text):
    reader = Reader(text)
    assert not reader.open and reader.tags.count("script") == 1
    assert "i" not in reader.tags
    told = "".join(reader.texts)
    assert "Two methods | <b>side</b> & side </script><script>alert(1)</script><!--" in told
    assert "(1) an F1 in the accuracy's column, 100 % <i>sure</i>" in told
    assert "(3) another paper's number, 100 % <i>quoted</i>" in told


def test_rows_have_ours_beside_the_papers_and_each_seed(text):
    cells = re.findall(r"<td[^>]*>(?:<span[^>]*>)?([^<]*)", text)
    scores = ["70.1 ± 1.0", NONE, "70.0 ± 0.8", "69.5 ± 0.7", f"{MINUS}0.1 [{MINUS}1.5, 1.3]"]
    assert cells[:11] == ["FT", "RTE", *scores, "5 of 5", "20,480", "42 min", "within"]
    assert "ptrun experiment=made/table1 cell=small.FT.full.CB" in cells
    assert "1: 70.00, 2: 71.00, 3: 69.00, 4: 70.50, 5: 69.50" in cells


def test_the_policy_allows_this_script_and_this_style_alone(text):
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)[1]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    ((style,),) = [re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)]
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    none = dict.fromkeys(("default-src", "base-uri", "form-action"), "'none'")
    own = {"style-src": f"'{hashed(style)}'", "script-src": f"'{hashed(script)}'"}
    assert rules == {**none, **own, "img-src": "data:"}
    assert "style=" not in text and "onclick=" not in text
    assert len(script.splitlines()) <= 60 and len(style + script) < 8_000


def test_the_page_refers_to_nothing_outside(text):
    attributes = Reader(text).attributes
    outside = [(n, v) for n, v in attributes if n in ("src", "href", "srcset", "action")]
    assert len(outside) > 2 and all(v.startswith(("#", "data:")) for _, v in outside)
    for word in ("url(", "@import", "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon"):
        assert word not in text


def hashed(text):
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def opened(text, script, folder, width=None):
    """Return what a script finds in the page, or in a frame as wide as a phone."""
    script = (
        f"addEventListener('load', () => {{ {script}; document.body.replaceChildren(Object.assign("
        "document.createElement('pre'), { id: 'probe', textContent: JSON.stringify(told) })); });"
    )
    allowed = f"script-src '{hashed(script)}' "
    text = text.replace("script-src ", allowed, 1)
    text = text.replace("</body>", f"<script>{script}</script></body>")
    if width:  # no window is as narrow as a phone; a frame is, and its page sees that width
        frame = f'<iframe style="width:{width}px;height:700px" srcdoc="{html.escape(text)}">'
        copy = "document.body.append(frames[0].document.getElementById('probe').textContent)"
        late = f"addEventListener('load', () => setTimeout(() => {copy}, 300));"
        text = f"<!doctype html><body>{frame}</iframe><script>{late}</script></body>"
    file = folder / "probe.html"
    file.write_text(text, encoding="utf-8")
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=5000", "--window-size=1280,900", f"--user-data-dir={folder}"]
    done = subprocess.run([*command, f"file://{file}"], capture_output=True, text=True, timeout=120)
    told = re.findall(r'\{"(?:at_first|width)".*\}', done.stdout)
    assert told, done.stderr[-2000:]
    return json.loads(html.unescape(told[-1]))


in_chromium = pytest.mark.skipif(not CHROMIUM, reason="browser: chromium is not installed")
ROWS = ["FT RTE", "PT_1 RTE", "FT CB", "PT_1 CB", "PT_1 AVG", "quoted RTE"]
SORTED = """
const body = document.querySelector("table").tBodies[0];
const texts = (row) => [...row.cells].slice(0, 2).map((cell) => cell.innerText).join(" ");
const order = () => [...body.rows].map(texts);
const press = (column) => document.querySelector(`th:nth-child(${column}) button`).click();
const told = { at_first: order() };
press(3);
told.up = order();
told.aria = document.querySelector("th:nth-child(3)").ariaSort;
press(3);
told.down = order();
press(10);
told.cost = order();
press(1);
told.words = order();
told.images = [...document.images].map((image) => image.naturalWidth > 0);
const names = performance.getEntriesByType("resource").map((entry) => entry.name);
told.requests = names.filter((name) => !name.startsWith("data:"));
"""
NARROW = """
const right = (node) => node.getBoundingClientRect().right;
const over = [...document.querySelectorAll("body *")].filter((node) => right(node) > innerWidth);
const scroll = document.documentElement.scrollWidth;
const told = { width: innerWidth, scroll, over: over.map((node) => node.outerHTML) };
"""


@pytest.mark.slow
@in_chromium
def test_columns_are_sorted_in_chromium(text, tmp_path):
    told = opened(text, SORTED, tmp_path)
    by_number = [ROWS[5], ROWS[0], ROWS[1], ROWS[4], ROWS[2]]
    assert told["at_first"] == ROWS and told["aria"] == "ascending"
    assert told["up"] == [*by_number, ROWS[3]] and told["down"] == [*by_number[::-1], ROWS[3]]
    assert told["cost"][:3] == [ROWS[3], ROWS[1], ROWS[0]], "18, 30 and 42 minutes"
    assert [name.split()[0] for name in told["words"]] == ["FT"] * 2 + ["PT_1"] * 3 + ["quoted"]
    assert told["images"] == [True] and told["requests"] == []


@pytest.mark.slow
@in_chromium
def test_nothing_is_wider_than_a_phone(text, tmp_path):
    told = opened(text, NARROW, tmp_path, width=375)
    assert told["width"] == 375 and told["scroll"] <= 375 and told["over"] == []


def test_links_in_the_folder_are_replaced_not_followed(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "ledger"
    outside.mkdir()
    folder.mkdir()
    (outside / "own.html").write_text("mine")
    (folder / "index.html").symlink_to(outside / "own.html")
    os.mkfifo(folder / "ledger.csv")
    assert "index.html" in write([], folder)
    assert (outside / "own.html").read_text() == "mine" and (folder / "ledger.csv").is_file()
    (folder / "figures").symlink_to(outside)
    with pytest.raises(OSError, match="leads out"):
        write([], folder)
