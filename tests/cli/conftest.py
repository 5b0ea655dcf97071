"""The installed command in a process of its own, from a folder of its own."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.warm import Warm


@dataclass
class Command:
    """Runs `ptrun` in `folder` with what every test of it shares."""

    folder: Path
    data_dir: Path
    backbone: Path
    warm: Warm
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments):
        return self.warm.run(arguments, self.folder, self.environment)

    def fresh(self, *arguments):
        """Run it as a shell does, imports and all."""
        line = [sys.executable, "-m", "ptrun", *arguments]
        return subprocess.run(line, cwd=self.folder, capture_output=True, text=True, timeout=240)

    def start(self, *arguments):
        """Start it, and let it run; `__exit__` kills it."""
        return self.warm.start(["-m", "ptrun", *arguments], self.folder)

    def small(self, *overrides):
        """Return overrides of a run of six rows on a tiny backbone."""
        own = [f"data_dir={self.data_dir}", f"backbone.path={self.backbone}", "method.length=3"]
        return ["task=sst2", *own, "train.batch_size=2", "train.epochs=2", *overrides]

    def results(self):
        return sorted(self.folder.rglob("result.json"))


@pytest.fixture
def ptrun(tmp_path, data_dir, tiny_folder, warm):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return Command(folder, data_dir, tiny_folder("bert"), warm)
