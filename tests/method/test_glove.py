"""Averages of word vectors, and files that hold none."""

import pytest
import torch

from ptrun.errors import UserError
from ptrun.method.instance import glove

LINES = "the 1 2 -3\ndont 0.5 0 1e1\n, 9 9 9\nélan 4 4 4\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(LINES, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("the", [1, 2, -3]),
        ("The, DON'T!", [0.75, 1, 3.5]),
        ("the the\tdont", [2.5 / 3, 4 / 3, 4 / 3]),
        ("unseen (Élan) , words", [4, 4, 4]),
    ],
)
def test_a_text_is_the_mean_of_its_known_words(file, text, mean):
    assert glove(file).width == 3
    torch.testing.assert_close(glove(file).mean(text), torch.tensor(mean, dtype=torch.float))


def test_a_text_without_known_words_is_drawn_from_the_text_alone(tmp_path, file):
    first, second = glove(file).mean("no one"), glove(file).mean("nothing")
    wide = tmp_path / "wide.txt"
    wide.write_text("x" + " 0" * 5000 + "\n")
    drawn = glove(str(wide)).mean("no one")
    assert not torch.equal(first, second)
    assert drawn.mean().abs() < 0.05 and drawn.std() == pytest.approx(0.6, abs=0.03)
    torch.manual_seed(5)
    again = tmp_path / "again.txt"
    again.write_text(LINES, encoding="utf-8")
    assert torch.equal(glove(str(again)).mean("no one"), first)
    assert torch.equal(glove(str(again)).mean(""), glove(file).mean(""))


def test_a_file_is_shared_until_it_changes_and_named_by_its_content(tmp_path, file):
    before = glove(file)
    assert glove(file) is before
    other = tmp_path / "other.txt"
    other.write_text(LINES, encoding="utf-8")
    assert glove(str(other)).digest() == before.digest()
    other.write_text(LINES + "a 1 1 1\n", encoding="utf-8")
    assert glove(str(other)).digest() != before.digest()
    torch.testing.assert_close(glove(str(other)).mean("a"), torch.ones(3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word\n", "line 1 has no numbers after its word"),
        ("", "line 1 has no numbers"),
        ("a 1 2\nb 1\n", "the vector of 'b' is '1'; line 1 has 2 numbers"),
        ("a 1 2\nb 1 2 3\n", "the vector of 'b' is '1 2 3'; line 1 has 2 numbers"),
        ("400000 300\nb 1 2\n", "the vector of 'b' is '1 2'; line 1 has 1 numbers"),
        ("a 1 2\nb nan 1\n", "the vector of 'b' is 'nan 1'; line 1 has 2 numbers"),
        ("a 1 2\nb 1 2-3\n", "the vector of 'b': could not .* '2-3'"),
    ],
)
def test_files_that_are_not_vectors_are_refused(tmp_path, text, message):
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        glove(str(path)).mean("b")


def test_a_file_that_is_not_there_is_told():
    with pytest.raises(UserError, match=r"method.glove=no.txt: no such file; give a text file"):
        glove("no.txt")


@pytest.mark.parametrize("name", ["~no_such_user/glove.txt", "a" * 300])
def test_what_can_be_no_file_s_name_is_told_too(name):
    with pytest.raises(UserError, match=r"no such file; give a text file"):
        glove(name)
