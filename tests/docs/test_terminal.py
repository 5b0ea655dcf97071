"""The pictures of a terminal in the documentation show what the commands print today.

`PTRUN_PICTURES=write pytest tests/docs/test_terminal.py` makes them anew.
"""

import os
import shlex
import shutil

import pytest

from tests.docs.pages import DOCS, pages, source
from tests.docs.terminal import picture, words

FOLDER = DOCS / "terminal"
CHECK = "ptrun check task=pocket_ner method=ptuning_v2"
TALK = "ptrun check backbone=pocket_gpt2 method=lora task=csv task.train=chat.jsonl "
TALK += "readout.chat_template=chatml"
SWEEP = "ptrun -m method=prompt_tuning,ptuning_v2,lora seed=1,2,3 task=pocket_sentiment "
SWEEP += "train.max_steps=100"
REPORT = "ptrun report outputs"
TRAIN = "ptrun task=pocket_sentiment method=lora seed=1 train.max_steps=100"


def shown(name, command, folder, warm):
    """Run a command and return its picture; with PTRUN_PICTURES=write it is kept."""
    done = warm.run(shlex.split(command)[1:], folder)
    assert done.returncode == 0, done.stderr
    made = picture(name, command, done.stdout)
    if os.environ.get("PTRUN_PICTURES") == "write":
        (FOLDER / f"{name}.svg").write_text(made, encoding="utf-8")
    return made


def kept(name):
    return (FOLDER / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_pictures_are_those_of_today(tmp_path, warm):
    assert words(shown("check", CHECK, tmp_path, warm)) == words(kept("check"))
    shutil.copy(DOCS.parent / "examples" / "chat.jsonl", tmp_path)
    assert words(shown("conversation", TALK, tmp_path, warm)) == words(kept("conversation"))
    assert warm.run(shlex.split(SWEEP)[1:], tmp_path).returncode == 0
    for name, command in (("report", REPORT), ("train", TRAIN)):
        assert words(shown(name, command, tmp_path, warm)) == words(kept(name))


def test_every_picture_is_on_a_page_and_loads_nothing():
    files = {file.stem for file in FOLDER.glob("*.svg")}
    assert files == {
        "check",
        "conversation",
        "pocket",
        "report",
        "train",
    }  # pocket takes ten minutes to run
    for name in files:
        assert any(f"terminal/{name}.svg" in source(page) for page in pages())
        assert "http" not in kept(name).replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_other_words_are_noticed():
    made = picture("a", "ptrun x", "dev 1.25 ± 0.5 │ test")
    assert words(made) == words(picture("b", "ptrun x", "dev 33 ± 7 │ test"))
    assert words(made) != words(picture("a", "ptrun x", "dev 1.25 ± 0.5 │ best"))
