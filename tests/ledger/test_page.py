"""The page: whole, safe, and alone; in Chromium it sorts, filters, changes theme, fits a phone."""

import html
import json
import os
import re
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ptrun.ledger.experiment import read
from ptrun.ledger.formats import MINUS
from ptrun.ledger.page.page import embedded, page
from ptrun.ledger.paper import write
from ptrun.ledger.plots import plots
from ptrun.ledger.rows import rows
from ptrun.ledger.shown import shown
from tests.ledger.small import TABLE, results

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
VOID = {"meta", "link", "input", "br"}
HERE = Path(__file__).parent
DONE = (
    "document.body.replaceChildren(Object.assign(document.createElement('pre'), "
    "{ id: 'probe', textContent: JSON.stringify(told) }));"
)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "table.yaml").write_text(TABLE)
    results(folder / "outputs")
    experiment = read(folder / "table.yaml")
    table = shown(experiment, rows(experiment, folder / "outputs"))
    return page([table], {experiment.name: plots(table)})


class Reader(HTMLParser):
    """Keeps what is open, every attribute, and the texts of scripts."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.scripts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


def test_the_page_is_well_formed_and_its_data_are_safe(text):
    reader = Reader()
    reader.feed(text)
    assert not reader.open and len(reader.scripts) == 2
    data = json.loads(reader.scripts[0])
    assert data["tables"][0]["title"].endswith("</script><script>alert(1)</script><!--")
    assert data["tables"][0]["notes"] == {"a": "an F1 in the accuracy's column, 100 % <i>sure</i>"}
    assert data["tables"][0]["rows"][5]["why"].endswith("100 % <i>quoted</i>")
    assert "[[" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_policy_allows_this_script_and_this_style_alone(text):
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)[1]
    given = dict(rule.split(" ", 1) for rule in policy.split("; "))
    ((style,),) = [re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)]
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    assert given == {
        "default-src": "'none'",
        "style-src": f"'sha256-{hashed(style)}'",
        "script-src": f"'sha256-{hashed(script)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert "style=" not in text.replace(script, "") and "onclick=" not in text


def test_data_cannot_end_their_element():
    hostile = {"a": "</script><!--<script>&\u2028\u2029"}
    told = embedded(hostile)
    assert not set("<>&\u2028\u2029") & set(told) and json.loads(told) == hostile
    with pytest.raises(ValueError):
        embedded(float("nan"))


def test_the_page_refers_to_nothing_outside(text):
    reader = Reader()
    reader.feed(text)
    named = dict(reader.attributes)
    assert "default-src 'none'" in named["content"] or "default-src 'none'" in text
    outside = [(n, v) for n, v in reader.attributes if n in ("src", "href", "srcset", "action")]
    assert all(value.startswith(("#", "data:")) for _, value in outside)
    for word in ("url(", "@import", "fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon"):
        assert word not in text


def test_what_moves_the_page_is_small(text):
    shown = r'<script id="data".*?</script>|<template.*?</template>'
    assert len(re.sub(shown, "", text, flags=re.DOTALL)) < 60_000


def test_every_drawing_is_on_the_page_once(text):
    data = json.loads(re.search(r'<script id="data".*?>(.*?)</script>', text, flags=re.DOTALL)[1])
    rows = [row for row in data["tables"][0]["rows"] if "ours" in row]
    named = [one["plot"] for one in [*rows, *data["claims"]["claims"]]]
    named += [n for row in rows for n in row["curves"].values()]
    named += data["tables"][0]["plots"].values()
    held = re.findall(r'<template id="drawing(\d+)"><svg class="plot"', text)
    assert sorted(named) == [int(number) for number in held]
    assert len(rows) == 4 and [len(row["curves"]) for row in rows if row["curves"]]


def opened(text, script, folder, width=None):
    """Return what a script finds in the page, or in a frame as wide as a phone."""
    found = (HERE / script).read_text(encoding="utf-8")
    own = _with(text, f"addEventListener('load', () => {{ {found} {DONE} }});")
    if width:  # no window is as narrow as a phone; a frame is, and its page sees that width
        frame = (
            f'<iframe style="width:{width}px;height:700px;border:0" srcdoc="{html.escape(own)}">'
        )
        own = _with(f"<!doctype html><body>{frame}</iframe></body>", _OUT)
    file = folder / "probe.html"
    file.write_text(own, encoding="utf-8")
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=5000", "--window-size=1280,900", f"--user-data-dir={folder}"]
    done = subprocess.run([*command, f"file://{file}"], capture_output=True, text=True, timeout=120)
    told = re.findall(r'\{"(?:at_first|width)".*\}', done.stdout)
    assert told, done.stderr[-2000:]
    return json.loads(html.unescape(told[-1]))


def _with(text, script):
    """Add a script that the page's policy allows."""
    allowed = f"script-src 'sha256-{hashed(script)}' "
    return text.replace("script-src ", allowed, 1).replace(
        "</body>", f"<script>{script}</script></body>"
    )


def hashed(text):
    return b64encode(sha256(text.encode()).digest()).decode()


_OUT = (
    "addEventListener('load', () => setTimeout(() => { const found = document.querySelector("
    "'iframe').contentDocument.getElementById('probe'); document.body.append(found.textContent);"
    "}, 300));"
)
in_chromium = pytest.mark.skipif(not CHROMIUM, reason="browser: chromium is not installed")
ROWS = ["FT RTE", "PT_1 RTE", "FT CB", "PT_1 CB", "PT_1 AVG", "quoted RTE"]


@pytest.mark.slow
@in_chromium
def test_sorting_filtering_theme_and_details_in_chromium(text, tmp_path):
    told = opened(text, "probe_wide.js", tmp_path)
    assert told["at_first"] == ROWS and told["columns"][:4] == [
        "Method",
        "Task",
        "Verdict",
        "Paper",
    ]
    assert told["notes"] == ["(a) an F1 in the accuracy's column, 100 % <i>sure</i>."]
    assert told["up"] == [
        ROWS[5],
        ROWS[0],
        ROWS[1],
        ROWS[4],
        ROWS[2],
        ROWS[3],
    ]  # none printed: last
    assert told["down"] == [ROWS[2], ROWS[4], ROWS[1], ROWS[0], ROWS[5], ROWS[3]]
    assert told["again"] == ROWS and told["aria"] == "ascending"
    counts = {"within": "2", "above": "1", "below": "0", "not final": "0"}
    counts |= {"not comparable": "1", "not run": "2"}
    assert told["chips"] == counts
    assert told["not_run"] == [ROWS[2], ROWS[5]]
    assert told["status"] == "2 of 6 printed numbers"
    assert told["found"] == ["PT_1 RTE"] and told["address"].startswith("#find=pt_1")
    assert told["theme"] == "dark" and told["light"] != told["dark"]
    assert told["detail"] == [
        "Scores by seed",
        *("Dev score by step, paper protocol", "Dev score by step, honest protocol"),
        "Compared with other methods, same seeds",
    ]
    assert told["seeds"] == 7 and told["closed"] == 0
    assert told["paired"] == ["PT_1", "paper", "5", f"{MINUS}4.0", "0.062"]
    assert told["commands"] == ["ptrun experiment=made/table1 cell=small.FT.full.CB"]
    assert told["copies"] == 1 and told["injected"] == 0 and told["requests"] == 0


@pytest.mark.slow
@in_chromium
def test_nothing_is_wider_than_a_phone(text, tmp_path):
    told = opened(text, "probe_narrow.js", tmp_path, width=375)
    assert told["width"] == 375 and told["scroll"] <= 375
    assert told["over"] == [] and told["cards"] == 0 and told["display"] == "block"


def test_links_in_the_folder_are_replaced_not_followed(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "ledger"
    outside.mkdir()
    folder.mkdir()
    (outside / "own.html").write_text("mine")
    (folder / "index.html").symlink_to(outside / "own.html")
    os.mkfifo(folder / "ledger.md")
    assert "index.html" in write([], folder)
    assert (outside / "own.html").read_text() == "mine" and (folder / "ledger.md").is_file()
    (folder / "figures").symlink_to(outside)
    with pytest.raises(OSError, match="leads out"):
        write([], folder)
