"""The built site: strict, without network, and readable on a phone."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages
from tests.tiers import package

PHONE = 375  # pixels
_MEASURE = """<iframe id="page" src="file://PAGE" style="width:WIDTHpx"></iframe>
<p id="o"></p><script>
document.getElementById("page").onload = event => {
  const width = event.target.contentDocument.documentElement.scrollWidth;
  document.getElementById("o").textContent = width; };
</script>"""
WIDEST = ("start", "methods/idpg", "reference/keys", "reference/commands", "reproduce/ppt")


@pytest.fixture
def site(tmp_path_factory):
    package("material")
    package("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere_and_fits_a_phone(site, tmp_path):
    """One test, since building the site is what takes time."""
    built = list(site.rglob("*.html"))
    assert len(built) >= len(pages())
    assert not {str(f): found for f in built if (found := remote_assets(f))}
    assert not [f for f in built if "md-source" in f.read_text("utf-8")]  # it asks GitHub for stars
    browser = shutil.which("chromium") or pytest.skip("browser: chromium is not installed")
    widths = {page: measured(browser, site / f"{page}.html", tmp_path) for page in WIDEST}
    assert all(0 < width <= PHONE for width in widths.values()), widths
    shown = dumped(browser, f"file://{site / 'index.html'}?q=test%20a%20part", tmp_path)
    links = re.findall(r'md-search-result__link" href="([^"]*)', shown)
    assert "./extend/index.html#test-a-part" in links, "it can be searched from the disk"


def measured(browser: str, page: Path, folder: Path):
    """Return the width in pixels of a page in a frame as wide as a phone."""
    html = _MEASURE.replace("PAGE", str(page)).replace("WIDTH", str(PHONE))
    (folder / "measure.html").write_text(html, encoding="utf-8")
    measure = f"file://{folder / 'measure.html'}"
    shown = dumped(browser, measure, folder, "--allow-file-access-from-files")
    return int(re.search(r'<p id="o">(\d+)</p>', shown)[1])


def dumped(browser: str, address: str, folder: Path, *options: str):
    line = [browser, "--headless", "--no-sandbox", "--disable-gpu", *options]
    line += [f"--user-data-dir={folder / 'browser'}", "--virtual-time-budget=4000"]
    done = subprocess.run(
        [*line, "--dump-dom", address], capture_output=True, text=True, timeout=120
    )
    return done.stdout


def remote_assets(file: Path):
    """Return what a page would fetch from another machine while it is read."""
    html = file.read_text(encoding="utf-8")
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", html)
    kept = [tag for tag in tags if 'rel="canonical"' not in tag]
    return [tag for tag in kept if re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag)]
