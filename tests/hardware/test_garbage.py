"""Garbage is not collected while a command imports, and is from its first step on."""

import subprocess
import sys

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


def test_a_program_that_uses_ptrun_keeps_its_own_garbage_collection(monkeypatch):
    called = []
    monkeypatch.setattr(environment.gc, "freeze", lambda: called.append("freeze"))
    monkeypatch.setattr(environment.gc, "enable", lambda: called.append("enable"))
    environment.imported()
    assert not called
