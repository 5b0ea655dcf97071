"""The page: whole, safe, and alone."""

import os
import re
from html.parser import HTMLParser

import pytest

from ptrun.papers.paper import write
from ptrun.reporting.formats import MINUS, NONE
from tests.papers.small import filled


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
    """Keeps every tag and attribute, and the texts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


def test_names_and_texts_of_strangers_are_escaped(text):
    reader = Reader(text)
    assert not {"script", "i"} & {*reader.tags}
    shown = "".join(reader.texts)
    assert "Two methods | <b>side</b> & side </script><script>alert(1)</script><!--" in shown
    assert "(1) an F1 in the accuracy's column, 100 % <i>sure</i>" in shown
    assert "(3) another paper's number, 100 % <i>quoted</i>" in shown


def test_rows_have_ours_beside_the_papers_and_each_seed(text):
    cells = re.findall(r"<td[^>]*>([^<]*)", text)
    scores = ["70.1 ± 1.0", NONE, "70.0 ± 0.8", "69.5 ± 0.7", f"{MINUS}0.1 [{MINUS}1.5, 1.3]"]
    assert cells[:11] == ["FT", "RTE", *scores, "5 of 5", "20,480", "42 min", "within"]
    assert "ptrun experiment=made/table1 cell=small.FT.full.CB" in cells
    assert "1: 70.00, 2: 71.00, 3: 69.00, 4: 70.50, 5: 69.50" in cells


def test_the_page_refers_to_nothing_outside(text):
    outside = [(n, v) for n, v in Reader(text).attributes if n in ("src", "href", "srcset")]
    assert outside and all(value.startswith(("#", "data:")) for _, value in outside)
    assert "url(" not in text and "@import" not in text


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
