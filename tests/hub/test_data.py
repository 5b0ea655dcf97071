"""A data set of the hub is read, or one sentence says why not."""

import io
import time
from pathlib import Path

import datasets
import pytest
from huggingface_hub import constants

from ptrun.errors import UserError
from ptrun.task.own import Own
from ptrun.task.source import Source
from tests.hub.conftest import DATA, SPLITS, data_files, parquet
from tests.hub.faults import break_, check

pytestmark = pytest.mark.slow


def source(revision="main", name=DATA, recorded=None, **origin):
    made = Source("reviews", {"hub": name, "revision": revision, **origin}, None)
    made.repository.recorded = recorded
    return made


def texts(read, split="train"):
    return [row.text("text") for row in read.rows(split)]


def refused(read, split="train"):
    started = time.monotonic()
    with pytest.raises(UserError) as caught:
        list(read.rows(split))
    assert time.monotonic() - started < 10
    return str(caught.value)


def main(hub):
    return hub.repos["datasets", DATA].refs["main"]


def test_all_splits_are_read_with_the_names_of_their_labels(hub):
    read = source()
    for split in SPLITS:
        rows = list(read.rows(split))
        assert [row.data["label"] for row in rows] == ["bad", "good"] * 6
        assert rows[0].text("text") == f"a {split} film 0 is bad"
    assert read.repository.commit == main(hub)


def test_all_splits_come_from_one_commit_though_main_moves_between_them(hub):
    read, old = source(), main(hub)
    texts(read)
    hub.push("datasets", DATA, data_files("new"))
    assert texts(read, "test")[0].startswith("a test") and read.repository.commit == old


@pytest.mark.parametrize("named", ["commit", "tag"])
def test_a_pinned_revision_is_the_one_that_is_read(hub, named):
    old = main(hub)
    hub.repos["datasets", DATA].refs["tag"] = old
    hub.push("datasets", DATA, data_files("new"))
    read = source(old if named == "commit" else named)
    assert texts(read)[0].startswith("a train") and read.repository.commit == old


NO_ROWS = {"README.md": b"Nothing.\n"}
DAMAGED = {f"data/{split}.parquet": b"PAR1 no" for split in SPLITS}
WRONG = {  # a data set, what is pushed, the split, and what is said
    "id": ({"name": "someone/lost"}, None, "train", ["no such data set", "task.source.hub"]),
    "revision": ({"revision": "lost"}, None, "train", ["Type task.source.revision=main"]),
    "split": ({}, None, "dev", ["no split 'dev'", "train, validation, test", "task.splits"]),
    "subset": ({"subset": "lost"}, None, "train", ["no subset lost", "task.source.subset"]),
    "rows": ({}, NO_ROWS, "train", ["it cannot be read", "Check task.source.hub", "data_dir=DIR"]),
    "file": ({}, DAMAGED, "train", ["it cannot be read (Parquet", "task.source.revision"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_data_set_is_named(hub, case):
    origin, files, split, told = WRONG[case]
    if files:
        hub.push("datasets", DATA, files)
    check(refused(source(**origin), split), origin.get("name", DATA), *told)


@pytest.mark.parametrize("name", ["500", "silent"])
def test_downloaded_rows_are_used_if_the_hub_fails_later(hub, name):
    before = texts(source())
    happened, remedy = break_(hub, name)
    check(refused(source("other")), "task=reviews", DATA, happened, remedy, "data_dir=DIR")
    again = source()
    assert texts(again) == before and again.repository.commit == main(hub)


def test_a_recorded_commit_is_read_from_the_cache_if_access_is_withdrawn(hub, caplog):
    before, commit = texts(source()), main(hub)
    hub.gated[DATA] = "right"
    assert texts(source(recorded=commit)) == before
    assert f"the copy in the cache, commit {commit}, is used" in caplog.text
    check(refused(source()), "gated data set")


def test_offline_the_copy_of_the_wanted_commit_is_read(hub, offline):
    """The library would read the latest copy, whatever the revision."""
    texts(source())
    old = main(hub)
    new = hub.push("datasets", DATA, data_files("new"))
    texts(source())
    offline()
    for pinned in (source(recorded=old), source(old)):
        assert [texts(pinned, split)[0][:9] for split in SPLITS[:2]] == ["a train f", "a validat"]
        assert pinned.repository.commit == old
    assert texts(source())[0].startswith("new")
    assert texts(source(new), "test")[0].startswith("new test")


def test_offline_a_part_of_the_files_is_not_read(hub, offline):
    texts(source())
    next(Path(constants.HF_HUB_CACHE).rglob("train-*.parquet")).unlink()
    offline()
    check(refused(source()), "does not hold it")


def test_offline_the_copy_of_another_commit_is_refused(hub, offline):
    old = main(hub)
    hub.push("datasets", DATA, data_files("new"))
    texts(source())
    offline()
    check(refused(source(recorded=old)), "the hub is off (HF_HUB_OFFLINE=1)")
    check(refused(source(old)), "the hub is off (HF_HUB_OFFLINE=1)")


SCRIPT = {"README.md": b"A script.\n", "reviews.py": b"import os\nos.mkdir('harmed')\n"}


def converted(*subsets, **changed):
    """Return the files of the hub's branch of conversions."""
    places = [(subset, split) for subset in subsets for split in SPLITS]
    return {f"{s}/{split}/0000.parquet": parquet(f"{s} {split}") for s, split in places} | changed


def push_script(hub, *subsets, **changed):
    """Put a repository with a script alone on the hub, and its conversion."""
    hub.push("datasets", DATA, SCRIPT)
    return hub.push("datasets", DATA, converted(*subsets, **changed), "refs/convert/parquet")


def test_subsets_of_a_conversion_are_never_mixed(hub, offline):
    push_script(hub, "one", "two")
    revision = "refs/convert/parquet"
    before = texts(source(revision, subset="two"))
    assert len(before) == 12 and before[0].startswith("two") and not hub.files_sent(".py")
    message = refused(source(revision))
    check(message, "no subset None at refs/convert/parquet; there are one, two")
    check(refused(source(revision, subset="three")), "no subset three", "one, two")
    offline()
    assert texts(source(revision, subset="two")) == before and not hub.requests


def test_a_part_of_a_split_is_refused(hub):
    partial = {"one/partial-train/0000.parquet": parquet("part")}
    files = {path: own for path, own in converted("one").items() if "/train/" not in path}
    hub.push("datasets", DATA, files | partial, "refs/convert/parquet")
    message = refused(source("refs/convert/parquet", subset="one"))
    check(message, "only a part of the rows, one/partial-train", "task.source.hub")
    assert len(texts(source("refs/convert/parquet", subset="one"), "test")) == 12


@pytest.mark.parametrize("is_pinned", [False, True])
def test_a_script_is_not_run_and_the_message_names_the_conversion(hub, is_pinned):
    commit = hub.push("datasets", DATA, SCRIPT)
    push_script(hub, "default")
    read = source(commit) if is_pinned else source()
    check(refused(read), "reviews.py makes its rows", "task.source.revision=refs/convert/parquet")
    assert not hub.files_sent(".py")


def test_a_folder_that_has_the_name_of_a_data_set_is_not_read_in_its_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / DATA
    folder.mkdir(parents=True)
    (folder / "train.jsonl").write_text('{"text": "planted", "label": 0}\n')
    told = refused(source())
    assert f"task.source.hub=./{DATA}" in told
    assert texts(source(name=f"./{DATA}")) == ["planted"]
    (folder / "train.jsonl").unlink()
    assert "cannot be read" in refused(source(name=f"./{DATA}"))


def test_words_with_the_tags_of_a_class_label_need_no_file_of_options(hub):
    names = datasets.ClassLabel(names=["O", "B-PER", "I-PER"])
    kinds = {"tokens": datasets.List(datasets.Value("string")), "ner_tags": datasets.List(names)}
    rows = {"tokens": [["Ann", "Lee", "left"]] * 3, "ner_tags": [[1, 2, 0]] * 3}
    written = io.BytesIO()
    datasets.Dataset.from_dict(rows, datasets.Features(kinds)).to_parquet(written)
    hub.push("datasets", DATA, {f"data/{split}.parquet": written.getvalue() for split in SPLITS})
    columns = {"text": "tokens", "label": "ner_tags"}
    task = Own(None, hub=DATA, train="train", dev="validation", **columns)
    assert task.kind == "tagging" and task.labels == ["O", "B-PER", "I-PER"]
    assert task.load("dev")[0].target == ["B-PER", "I-PER", "O"]
