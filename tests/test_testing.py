"""`ptrun.testing`: a package from outside passes it, and broken parts are found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ptrun import testing
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.readout.heads import HEADS, LabelHead
from tests.docs.pages import blocks, source

ROOT = Path(__file__).parents[1]
TOYS = ROOT / "tests" / "data" / "toys"
CHECKS = """\
from ptrun import testing

ONE = ("pocket_bert",)


def test_method():
    assert testing.check_method("my_prefix", backbones=ONE)


def test_readout():
    assert testing.check_readout("cosine", methods=("ptuning_v2",), backbones=ONE)


def test_kind_of_task():
    assert testing.check_task("grades", "data_dir=.", methods=("fine_tuning",), backbones=ONE)


def test_tracker():
    testing.check_tracker("mine")
"""


@pytest.mark.slow
def test_a_package_from_outside_passes_its_tests(tmp_path):
    shutil.copytree(TOYS, tmp_path, dirs_exist_ok=True)
    pages = ("extend/readout.md", "howto/trackers.md")
    for block in [own for page in pages for own in blocks(source(page)) if own.title]:
        place = tmp_path / block.title
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.code)
    run = {"cwd": tmp_path, "capture_output": True, "text": True}
    made = subprocess.run([sys.executable, "-m", "ptrun", "new", "method", "my_prefix"], **run)
    assert made.returncode == 0, made.stderr
    (tmp_path / "test_parts.py").write_text(CHECKS)
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_parts.py"]
    done = subprocess.run(tests, **run)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


_INPUTS = PTuningV2.inputs


def careless(method, batch):
    """Change a frozen weight, then return the input."""
    with torch.no_grad():
        next(method.backbone.model.parameters()).add_(1.0)
    return _INPUTS(method, batch)


class Crowded(LabelHead):
    """A head whose answers depend on the other rows of a batch."""

    def scores(self, output, batch):
        """Return scores that favour a label if there are several rows."""
        return super().scores(output, batch) + torch.tensor([9.0, -9.0]) * (2 * len(batch) - 3)


def only(option):
    few = "+task.source.rows={train:20,validation:20,test:20}"
    one = ("pocket_bert",)
    return testing.check_task("pocket_sentiment", few, methods=(option,), backbones=one)


def test_a_method_that_keeps_the_promises_is_named():
    (name,) = only("ptuning_v2")
    assert name == "method=ptuning_v2 backbone=pocket_bert task=pocket_sentiment"


def test_a_changed_frozen_weight_is_found(monkeypatch):
    monkeypatch.setattr(PTuningV2, "inputs", careless)
    with pytest.raises(AssertionError, match="weights that it does not learn stay as they are"):
        only("ptuning_v2")


def test_an_answer_that_depends_on_its_batch_is_found(monkeypatch):
    monkeypatch.setitem(HEADS, "label", Crowded)
    with pytest.raises(AssertionError, match="no answer depends on the others of a batch"):
        only("prompt_tuning")


def test_refused_combinations_alone_are_no_success():
    with pytest.raises(AssertionError, match="all combinations are refused"):
        testing.check_task("pocket_similarity", methods=("dpt",), backbones=("pocket_bert",))
