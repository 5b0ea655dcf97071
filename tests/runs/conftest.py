"""A small run, which most tests of runs begin with."""

import pytest

from ptrun.config.compose import compose_run


@pytest.fixture
def small(data_dir, tiny_folder, tmp_path):
    """Return a function that composes a run of six steps on a tiny backbone."""

    def composed(*overrides, backbone="bert", **changes):
        line = [f"data_dir={data_dir}", f"backbone.path={tiny_folder(backbone)}", "task=sst2"]
        line += ["train.batch_size=2", "train.max_steps=6", f"outputs={tmp_path}"]
        return compose_run([*line, *overrides], **changes)

    return composed
