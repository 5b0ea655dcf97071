"""Examples made of a corpus: the same everywhere, no document in two parts, memory flat."""

import tracemalloc
from shutil import copytree

import pytest

from ptrun.config import identity
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.papers.ppt import MAKERS, Construction
from ptrun.pattern.pattern import read_pvps
from ptrun.runs.plan import plan
from ptrun.task.stored import Stored
from tests.hashing import told
from tests.papers.ppt.corpora import document, origin, write

MANY = {"train": 10_000, "validation": 10_000, "test": 10_000}
TASKS = {"nsp": "ppt_nsp", "nss": "ppt_nss", "unified": "ppt_unified"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write(folder, [document(number) for number in range(400)])
    return str(folder)


def rows(corpus, split="train", make="nsp", **given):
    made = Construction(corpus=corpus, make=make, **{"examples": MANY, **given})
    return [row for _, row in made.rows(split)]


def seen(row):
    texts = [row[key] for key in ("first", "second", "query") if key in row]
    return {origin(text)[0] for text in [*texts, *row.get("options", [])]}


@pytest.mark.parametrize("make", MAKERS)
def test_no_document_is_in_two_parts(corpus, make):
    parts = [set().union(*map(seen, rows(corpus, split, make))) for split in MANY]
    assert set.union(*parts) == set(range(400))
    assert sum(map(len, parts)) == 400
    assert 340 < len(parts[0]) < 380, "nine of ten"


def test_equal_documents_are_in_one_part(tmp_path):
    write(tmp_path, [document(number) for number in range(100)] * 2)
    parts = [set().union(*map(seen, rows(str(tmp_path), split))) for split in MANY]
    assert sum(map(len, parts)) == 100


@pytest.mark.parametrize("make", MAKERS)
def test_fewer_examples_are_the_first_of_more(corpus, make):
    few = {"train": 7, "validation": 3, "test": 1}
    assert rows(corpus, make=make, examples=few) == rows(corpus, make=make)[:7]


def test_the_seed_decides(corpus):
    assert rows(corpus) == rows(corpus) != rows(corpus, seed=234)


@pytest.mark.parametrize("make", MAKERS)
def test_other_processes_make_the_same(corpus, make):
    """Whatever the seed of Python's hashes is."""
    code = (
        "import hashlib, json\nfrom ptrun.papers.ppt import Construction\n"
        f"made = Construction(corpus={corpus!r}, make={make!r}, examples={MANY!r})\n"
        "print(hashlib.sha256(json.dumps(list(made.rows('train'))).encode()).hexdigest())"
    )
    assert len(told(code)) == 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """Blocks hold 1,000 documents, so three and six of them peak alike; to a tenth."""
    peaks = []
    for blocks in (3, 6):
        file = write(tmp_path / str(blocks), (document(n) for n in range(1_200 * blocks)))
        made = Construction(corpus=str(file), make="nsp", examples=dict.fromkeys(MANY, 10**9))
        tracemalloc.start()
        for _ in made.rows("train"):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"make": "npp"}, r"task.source.make: expected one of 'nsp', 'nss', 'unified', got 'npp'"),
        ({"unit": "word"}, r"task.source.unit: expected one of 'line', 'sentence', got 'word'"),
        ({"examples": {"train": 5}}, r"task.source.examples is .*each of train, validation, test"),
        ({"shares": [1, 0, 0]}, r"task.source.shares is \[1, 0, 0\]; give three"),
        ({"examples": 100}, r"task.source.examples: expected .*got 100"),
        ({"shares": 5}, r"task.source.shares: expected list of int, got 5"),
        ({"corpus": None}, r"task.source.corpus: expected str, got None"),
        ({"filed": "doc"}, r"task.source.filed: unknown; did you mean 'field'"),
    ],
)
def test_what_does_not_fit_is_refused(given, told):
    with pytest.raises(UserError, match=told):
        composed = compose_run(["task=ppt_nsp"])
        composed.config["task"]["source"] |= {"examples": MANY, **given}
        plan(composed)


def test_a_corpus_that_gives_nothing_says_what_is_needed(tmp_path):
    write(tmp_path, [document(number, 4) for number in range(50)])
    with pytest.raises(
        UserError, match=r"no example for train: nsp .* of 5 lines or more, each line"
    ):
        rows(str(tmp_path))


@pytest.mark.parametrize(("make", "name"), TASKS.items())
def test_the_task_reads_what_is_made(corpus, make, name):
    config = compose_run([f"task={name}", f"task.source.corpus={corpus}"]).config["task"]
    task = build("task", config, None)
    train = task.load("train")
    made = rows(corpus, make=make)
    assert [example.id for example in train] == [row["id"] for row in made]
    right = [row["label"] if make == "nsp" else row["answer"] for row in made]
    assert [example.target for example in train] == right
    for pvp in read_pvps(task.pvps, task.labels).values():
        assert pvp.render(train[0].fields)


@pytest.mark.slow
def test_examples_in_files_are_those_in_lists_and_each_setting_has_its_file(corpus, tmp_path):
    def loaded(*typed, store=tmp_path / "store"):
        config = compose_run(["task=ppt_nsp", f"task.source.corpus={corpus}", *typed]).config
        config["task"]["source"]["store"] = store and str(store)
        return build("task", config["task"], None).load("train")

    filed = loaded()
    assert isinstance(filed, Stored) and list(filed) == loaded(store=None)
    for setting in ["task.source.seed=1", "task.source.examples.train=9"]:
        assert list(loaded(setting)) == loaded(setting, store=None) != list(filed)
    loaded("task.max_tokens=20", "task.pvps.pocket.pattern='{first} {mask} {second}'")
    loaded(f"task.source.corpus={copytree(corpus, tmp_path / 'copy')}")
    assert len(list((tmp_path / "store").glob("*.arrow"))) == 3


def test_a_run_is_named_by_what_the_corpus_says_not_by_its_place(tmp_path):
    def content(folder, *given):
        lines = [document(number) for number in range(9)]
        file = write(tmp_path / folder, lines, "x.jsonl")
        told = ["task=ppt_nsp", f"task.source.corpus={file}", *given]
        config = compose_run(told).config
        return identity.affecting(config, build("task", config["task"], None).digest(), "weights")

    assert content("a") == content("b")
    assert content("a") != content("a", "task.source.seed=1")
