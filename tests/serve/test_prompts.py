"""The runs that a server offers."""

import shutil
from dataclasses import replace

import pytest

import ptrun
from ptrun.folder import result
from ptrun.serve.prompts import Prompts
from tests.serve.conftest import ROWS, renamed


def test_a_server_offers_what_can_share_and_tells_the_rest(two, tmp_path, caplog):
    """The tuned run is the first by name; a run without its tensors is left out, too."""
    first, second, tuned, other = two
    names = [f"{place}-{run.id}" for place, run in enumerate((tuned, first, second, other))]
    for name, run in zip(names, (tuned, first, second, other), strict=True):
        renamed(run.folder, tmp_path / name)
    copied = tmp_path / "4-named"  # on equal weights of another name
    renamed(first.folder, copied)
    done = result.read(copied)
    place = {**done.manifest["backbone"], "name": "another"}
    (copied / "result.json").unlink()
    result.write(copied, replace(done, manifest={**done.manifest, "backbone": place}))
    (tmp_path / "a-copy").mkdir()
    shutil.copy(tuned.folder / "result.json", tmp_path / "a-copy")
    prompts = Prompts([tmp_path], ["hardware=cpu"], most_bytes=10**9, watch=True)
    assert prompts.ids() == names[1:3]
    assert [prompts.get(name).id for name in names[1:3]] == names[1:3]
    told = "\n".join(caplog.messages)
    assert all(told.count(name) == 1 for name in (names[0], names[3], "4-named", "a-copy"))
    assert "their backbone was tuned" in told and "keep=weights" in told
    alone = Prompts([tmp_path / names[0]], ["hardware=cpu"], most_bytes=10**9, watch=False)
    assert alone.ids() == names[:1]


@pytest.mark.slow
def test_a_server_does_not_begin_with_a_run_that_changes_the_backbone(two, tmp_path, caplog):
    common = ["task=pocket_sentiment", ROWS, "train.max_steps=1", "backbone=pocket_gpt2"]
    changing = ptrun.run("method=ia3", *common, f"outputs={tmp_path / 'out'}")
    renamed(changing.folder, tmp_path / "in" / "0")
    renamed(two[0].folder, tmp_path / "in" / "1")
    prompts = Prompts([tmp_path / "in"], ["hardware=cpu"], most_bytes=10**9, watch=True)
    assert prompts.ids() == ["1"] and "it changes the backbone (serve it alone): 0" in caplog.text
    alone = Prompts([tmp_path / "in" / "0"], [], most_bytes=10**9, watch=False)
    assert alone.ids() == ["0"]
    assert alone.facts("0")["created"] > 0
    (tmp_path / "in" / "0").rename(tmp_path / "gone")
    assert alone.facts("0")["created"] == 0
    (tmp_path / "gone").rename(tmp_path / "in" / "0")
