"""Short runs over one backbone, and servers over them."""

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn

import ptrun
from ptrun.folder import result
from ptrun.serve.batches import Batches
from ptrun.serve.connections import TimedProtocol
from ptrun.serve.hosts import Hosts
from ptrun.serve.prompts import Prompts
from ptrun.serve.serving import Limits, made
from tests.predicting.conftest import ROWS, two

__all__ = ["ROWS", "two"]  # a fixture

FACT = "readout.document=Stella Barden often visits Frank Venn on Saturday with her old friends."
LINES = {
    "labels": ["method=prompt_tuning", "method.length=3", "task=pocket_sentiment"],
    "prefix": ["method=ptuning_v2", "method.length=6", "task=pocket_writing"],
    "lora": ["method=lora", "task=pocket_writing"],
    "cartridge": ["method=cartridge", "method.length=9", FACT, "task=pocket_writing"],
    "topics": ["method=ptuning_v2", "method.length=4", "task=pocket_two_topics"],
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("served")
    common = ["backbone=pocket_gpt2", ROWS, "train.max_steps=3", "train.lr=0.05"]
    found = {}
    for name, line in LINES.items():
        own = ["readout.max_new_tokens=40"] if "task=pocket_writing" in line else []
        found[name] = ptrun.run(*line, *own, *common, f"outputs={out}")
    return found


@contextmanager
def serving(folder, *, keys=(), hosts=None, limits=None, most_bytes=10**9, most=1000, **options):
    """Yield the address of a server in a thread, with its prompts and batches."""
    prompts = Prompts([folder], [], most_bytes=most_bytes, watch=True)
    given = {"budget": 4096, "wait": 0.005, "longest": 200, **options}
    batches = Batches(prompts, most=most, **given)
    app = made(prompts, batches, hosts=hosts or Hosts(), keys=keys, limits=limits or Limits())
    quiet = {"log_level": "warning", "access_log": False, "timeout_graceful_shutdown": 20}
    config = uvicorn.Config(app, port=0, http=TimedProtocol, ws="none", **quiet)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", prompts, batches
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive(), "the server does not end"
        batches.close()


@pytest.fixture(scope="session")
def folder(runs):
    return next(iter(runs.values())).folder.parent


@pytest.fixture(scope="session")
def server(folder):
    """Yield the address of a server over all runs."""
    with serving(folder) as (address, *_):
        yield address


def renamed(folder, there, copy_function=shutil.copy2):
    """Copy a run to a folder of another name, and give it that id."""
    shutil.copytree(folder, there, copy_function=copy_function)
    done = result.read(there)
    (there / "result.json").unlink()
    result.write(there, replace(done, run_id=there.name))


@pytest.fixture
def copied(folder, tmp_path):
    """Return a folder with copies of the runs, to change."""
    return shutil.copytree(folder, tmp_path / "runs")
