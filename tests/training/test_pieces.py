"""Label words in pieces: which are named, what to type, and when nothing is said."""

import pytest

from ptrun.pattern.pattern import read_pvp
from ptrun.runs.examples import usable
from ptrun.training.health import words_in_pieces
from ptrun.types import Split
from tests.readings import readout_for
from tests.readout.reading import task

WHOLE = {"negative": ["bad"], "positive": ["good"]}
CUT = {"negative": ["bad"], "positive": ["great"]}  # no word of the tiny vocabulary
LISTED = "{~sentence} a plot {words|commas}."
CLASSES = {"read": "class_words"}


def readout(backbone, words, pattern="{~sentence} {mask}", rule="first", read="verbalizer"):
    pvps = {"own": {"pattern": pattern, "words": words, "rule": rule}}
    data = task("sst2", "none", pvps=pvps)
    return readout_for(backbone, data, {"readout": read}, soft=False), data


@pytest.mark.parametrize(
    ("kind", "pattern", "read"),
    [("bert", "{~sentence} {mask}", "verbalizer"), ("electra", LISTED, "class_words")],
)
def test_a_word_in_pieces_is_named_with_its_pieces_and_what_to_type(tiny, kind, pattern, read):
    backbone = tiny(kind)
    found = words_in_pieces(*readout(backbone, CUT, pattern, read=read))
    assert found == (
        f"the vocabulary of backbone={backbone.name} cuts label words into pieces, and only the "
        "first piece is read: great (g ##r ##e ##a ##t). To use a whole word, type "
        "task.pvps.own.words.positive=[WORD]"
    )


@pytest.mark.parametrize(
    ("kind", "words", "own"),
    [
        ("bert", WHOLE, {}),
        ("bert", CUT, {"pattern": "{~sentence} {masks}", "rule": "mean"}),
        ("bert", CUT, {"pattern": "{~sentence}{words|letters} {mask}"}),
        ("electra", WHOLE, {"pattern": LISTED} | CLASSES),
        (
            "electra",
            WHOLE | {"positive": ["good film"]},
            {"pattern": LISTED, "read": "class_words"},
        ),
    ],
    ids=["whole", "all pieces are read", "letters are read", "classes", "a name of whole words"],
)
def test_nothing_is_said_of_words_that_are_read_whole(tiny, kind, words, own):
    assert words_in_pieces(*readout(tiny(kind), words, **own)) is None


def test_a_head_reads_no_words(tiny):
    data = task("sst2", "none")
    head = readout_for(tiny(), data, {"readout": "head"}, soft=False)
    assert words_in_pieces(head, data) is None


def test_the_user_s_own_file_is_named_and_many_words_are_counted(tiny):
    words = {f"l{i}": [f"dog{'x' * i}"] for i in range(9)}
    made, data = readout(tiny(), WHOLE)
    made.pvp = read_pvp("own", {"pattern": "{~sentence} {mask}", "words": words, "rule": "first"})
    data.pvps_from = "own.yaml"
    found = words_in_pieces(made, data)
    assert found.count("dog") == 6
    assert found.endswith("and 3 more. To use a whole word, change it in own.yaml")


@pytest.mark.parametrize("words", [WHOLE, CUT])
def test_a_run_and_a_check_warn_once(tiny, data_dir, caplog, words):
    """Both ask for the usable examples of a method once."""

    class Method:
        backbone = tiny()
        readout, task = readout(backbone, words)

        def room(self):
            return 64

        def prime(self, train):
            pass

    usable(Method(), Split([], [], task("sst2", data_dir).load("test"), {}))
    assert caplog.text.count("cuts label words into pieces") == (words is CUT)
