"""Tensors that a model does not have are counted in a line; buffers of old versions are not."""

import logging

import torch

from tests.backbone.reading.test_slices import change, loaded
from tests.conftest import write_tiny


def test_unread_tensors_are_counted_and_named(tmp_path, caplog):
    folder = write_tiny(tmp_path / "bert", "bert")

    def edit(tensors):
        tensors |= {f"other.{i}.weight": torch.ones(2) for i in range(4)}
        tensors["bert.embeddings.position_ids"] = torch.arange(4)

    change(folder, edit)
    caplog.set_level(logging.INFO, "ptrun")
    loaded(folder)
    (line,) = [one for one in caplog.messages if "not read" in one]
    assert str(folder) in line and "other.0.weight" in line and "position_ids" not in line
    assert " 6 tensors of the files are not read" in line  # with the head of sentence pairs


def test_a_model_that_is_read_whole_has_no_line(tmp_path, caplog):
    caplog.set_level(logging.INFO, "ptrun")
    loaded(write_tiny(tmp_path / "gpt2", "gpt2"))
    assert not [one for one in caplog.messages if "not read" in one]
