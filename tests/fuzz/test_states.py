"""State: tensors, journals, results and rows come back to the bit, and damage is noticed."""

import logging
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ptrun.config.compose import Composed, compose_run
from ptrun.errors import all_readable
from ptrun.folder import digest, request, result, tensors
from ptrun.folder.scan import state_of
from ptrun.folder.store import RunStore
from ptrun.task.stored import stored
from ptrun.types import RunResult
from tests.fuzz.strategies import JSON, OBJECTS, TEXTS, fewer, read_or_refused

DTYPES = st.sampled_from(
    [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]
)
SHAPES = st.lists(st.integers(0, 4), max_size=3)
NAMED = st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
HEADERS = st.dictionaries(TEXTS.filter(lambda key: key != "digest"), TEXTS, max_size=3).map(
    lambda header: {**header, "backbone": "b"}
)


@st.composite
def made(draw):
    """Draw tensors of any bits, NaN among them."""
    found = {}
    for name in draw(st.lists(NAMED, max_size=3, unique=True)):
        dtype, shape = draw(DTYPES), draw(SHAPES)
        size = torch.Size(shape).numel() * dtype.itemsize
        content = torch.tensor(
            list(draw(st.binary(min_size=size, max_size=size))), dtype=torch.uint8
        )
        bits = content % 2 if dtype is torch.bool else content
        found[name] = bits.view(dtype).reshape(shape) if size else torch.zeros(shape, dtype=dtype)
    return found


def bits(held):
    return {
        name: (t.dtype, t.shape, t.contiguous().flatten().view(torch.uint8).tolist())
        for name, t in held.items()
    }


def flip(file, at, bit):
    """Change a bit of a file."""
    content = bytearray(file.read_bytes())
    content[at % len(content)] ^= 1 << bit
    file.unlink()  # a mapped one keeps its pages
    file.write_bytes(content)


@given(made(), HEADERS)
def test_tensors_come_back_to_the_bit(place, given_tensors, header):
    file = place / "t.safetensors"
    tensors.draft(file, given_tensors, header)()
    found, read_header = tensors.read(file, "Again.")
    assert bits(found) == bits(given_tensors) and read_header == header
    assert sorted(tensors.hashes(file, "Again.")) == sorted(given_tensors)


def store(folder, part=""):
    return RunStore(
        folder,
        {"name": "b", "revision": "r", "weights": "w"},
        SimpleNamespace(log=lambda row: None),
        part,
    )


@given(made(), st.integers(0, 5), st.dictionaries(TEXTS, JSON, max_size=3), st.data())
def test_a_saved_run_is_restored_with_the_rows_until_its_save(place, held, step, plain, data):
    folder = place / "run"
    part = data.draw(st.sampled_from(["", "P1", "../x", "a/b"]))
    own = store(folder).part(part)
    own.folder.joinpath("metrics.jsonl").unlink(missing_ok=True)
    rows = [{"event": "step", "step": i + 1, "loss": float(i)} for i in range(step + 2)]
    for row in rows:
        own.log(row)
    meta = {**plain, "step": step, "history": []}
    own.draft(held, meta)()
    found, read_meta = own.restore()
    losses = [float(i) for i in range(step)]
    assert bits(found) == bits(held) and read_meta == {**meta, "losses": losses}
    assert own.state_file.parent == folder
    lines = (folder / "metrics.jsonl").read_text("utf-8").split("\n")[:-1]
    left = [{k: v for k, v in digest.row(line).items() if k != "part"} for line in lines]
    assert left == rows[:step]
    own.state_file.unlink()


RESULTS = st.builds(
    RunResult,
    run_id=TEXTS,
    group=TEXTS,
    status=st.just("finished"),
    names=st.dictionaries(TEXTS, TEXTS, max_size=2),
    seed=st.integers(0, 2**32 - 1),
    metric=st.just("f1"),
    metrics=st.fixed_dictionaries(
        {"dev": st.just({}), "test": st.fixed_dictionaries({"f1": st.floats(0, 100)})}
    ),
    learned_parameters=st.fixed_dictionaries({"total": st.integers(0, 10**12)}),
    manifest=OBJECTS,
    config=st.dictionaries(TEXTS, JSON, max_size=3),
    reason=st.none() | TEXTS,
)


@fewer(2)
@given(RESULTS, st.integers(0), st.integers(0, 7))
def test_a_result_comes_back_and_damage_is_noticed(place, made_result, at, bit):
    folder = place / "result"
    folder.mkdir(exist_ok=True)
    result.write(folder, made_result)
    kept = {name: getattr(made_result, name) for name in ("config", "files")}
    expected = RunResult(**all_readable(vars(made_result)) | kept)
    assert result.read(folder) == expected
    flip(folder / result.FINISHED, at, bit)
    found = read_or_refused(result.read, folder)
    assert found is None or found == expected
    assert state_of(folder).kind in ("finished", "damaged")


@given(st.lists(JSON, max_size=5), st.integers(0))
def test_stored_rows_come_back_and_damage_makes_them_again(place, rows, at):
    file = place / f"rows{len(list(place.glob('rows*')))}.arrow"
    held = [{"row": row} for row in rows]
    assert list(stored(file, lambda: held, dict)) == held
    flip(file, at, 0)
    logging.disable()
    try:
        assert list(stored(file, lambda: held, dict)) == held
    finally:
        logging.disable(logging.NOTSET)
        file.unlink()


@pytest.fixture(scope="module")
def whole():
    return compose_run(["task=pocket_sentiment"])


@fewer(10)
@given(st.dictionaries(TEXTS, JSON, max_size=3), st.integers(0), st.sampled_from(range(8)))
def test_a_request_comes_back_and_damage_is_refused_or_read(place, whole, extra, at, bit):
    folder = place / "request"
    folder.mkdir(exist_ok=True)
    config = {**whole.config, "task": {**whole.config["task"], "pvps": extra}}
    request.write(folder, Composed(config, whole.names))
    found = request.read(folder)
    assert found.config["task"] == config["task"] and found.names.items() <= whole.names.items()
    flip(folder / request.FILE, at, bit)
    read_or_refused(request.read, folder)
