"""`ptrun search` as a command: killed twice it has the same winner, and test decides nothing."""

import json
import signal
import time

import pytest

pytestmark = pytest.mark.slow
LINE = ["search", "task=csv", "task.text=text", "task.label=label", "train.max_steps=10"]
LINE += ["train.eval_every=5", "train.batch_size=8"]
LINE += ["train.lr=tag(log,interval(1e-4,1e-1))", "method.length=range(1,9)"]
LINE += ["--trials", "6", "--seeds", "2"]

ROWS = {"train": range(20), "dev": range(20, 30), "test": range(30, 40)}


def table(file, numbers, flipped=False):
    words = {"good": "yes", "bad": "no"}
    rows = [
        f"the {noun} {n} is {word},{ ({'yes': 'no', 'no': 'yes'}[label] if flipped else label) }"
        for n in numbers
        for noun in ("film", "story")
        for word, label in words.items()
    ]
    file.write_text("\n".join(["text,label", *rows]) + "\n")
    return file


@pytest.fixture
def line(ptrun):
    """Return a function that returns the line of a search in a folder."""
    train, dev = (table(ptrun.folder / f"{n}.csv", c) for n, c in ROWS.items() if n != "test")
    table(ptrun.folder / "test.csv", ROWS["test"])

    def made(outputs, test="test.csv"):
        files = [f"task.train={train}", f"task.dev={dev}", f"task.test={ptrun.folder / test}"]
        return [*LINE, *files, f"outputs={outputs}"]

    return made


def report(ptrun, outputs):
    return json.loads((ptrun.folder / outputs / "runs" / "search.json").read_text())


def test_a_killed_search_has_the_same_winner_and_test_labels_change_nothing(ptrun, line):
    calm = ptrun(*line("calm"))
    assert calm.returncode == 0, calm.stderr
    expected = report(ptrun, "calm")
    assert expected["candidates"] == 6 and expected["fresh_seeds"] == [2, 3]
    for kind, finished in ((signal.SIGKILL, 2), (signal.SIGTERM, 4)):
        trials = ptrun.folder / "rough" / "runs" / "trials"
        with ptrun.start(*line("rough")) as running:
            while running.poll() is None and len(list(trials.glob("*/result.json"))) < finished:
                time.sleep(0.02)
            running.send_signal(kind)
            assert running.wait(timeout=60) != 0
    again = ptrun(*line("rough"))
    assert again.returncode == 0, again.stderr
    found = report(ptrun, "rough")
    for key in ("winner", "candidates", "abandoned", "failed", "test"):
        assert found[key] == expected[key], key
    assert found["dev_of_the_winner_in_the_search"] == expected["dev_of_the_winner_in_the_search"]

    table(ptrun.folder / "poison.csv", ROWS["test"], flipped=True)
    poisoned = ptrun(*line("poisoned", "poison.csv"))
    assert poisoned.returncode == 0, poisoned.stderr
    told = report(ptrun, "poisoned")
    assert told["winner"] == expected["winner"] and told["dev"] == expected["dev"]
    assert told["test"]["mean"] == pytest.approx(100 - expected["test"]["mean"])
    for folder in (ptrun.folder / "poisoned" / "runs" / "trials").iterdir():
        if folder.is_dir() and not folder.name.startswith("."):
            assert json.loads((folder / "result.json").read_text())["metrics"]["test"] == {}
            assert not (folder / "predictions.jsonl").exists()
