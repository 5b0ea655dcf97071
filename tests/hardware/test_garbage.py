"""Garbage is not collected while a command imports, and is from its first step on."""

import subprocess
import sys

import pytest

from ptrun.hardware import environment

SCRIPT = """
import gc
from ptrun.hardware.environment import done, imported, importing
importing()
before = gc.isenabled(), gc.get_freeze_count()
imported()
print(before, gc.isenabled(), gc.get_freeze_count() > 1000)
imported()
done()
"""


def test_a_command_collects_garbage_after_its_imports():
    line = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(False, 0) True True"


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_is_done_ends_with_its_code_and_frees_nothing(code):
    told = f"from ptrun.hardware.environment import done, importing; importing(); done({code})"
    freed = "kept = type('Kept', (), {'__del__': lambda _: print('freed')})()"
    text = f"{told}; {freed}; print('said', end=''); raise SystemExit(1)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "said")


def test_a_program_that_uses_ptrun_keeps_its_own_garbage_collection(monkeypatch):
    called = []
    monkeypatch.setattr(environment.gc, "freeze", lambda: called.append("freeze"))
    monkeypatch.setattr(environment.gc, "enable", lambda: called.append("enable"))
    environment.imported()
    assert not called
