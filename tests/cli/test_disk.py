"""A disk that is full, or a folder that cannot be written: path, cause, advice; then it goes on."""

import subprocess
import sys

import pytest

RUN = ["task=pocket_sentiment", "method=prompt_tuning", "method.length=4", "setting=few_shot_32"]
RUN += ["train.max_steps=2", "train.eval_every=1", "train.batch_size=8"]


def limited(folder, blocks, *arguments):
    """Run ptrun where no file may have more than some blocks of 1 KiB."""
    line = f'ulimit -f {blocks}; exec "$@"'
    command = ["bash", "-c", line, "bash", sys.executable, "-m", "ptrun", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)


def results(folder):
    return sorted(folder.rglob("result.json"))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 8])
def test_a_full_disk_is_told_and_the_same_command_goes_on(ptrun, blocks):
    done = limited(ptrun.folder, blocks, *RUN)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "File too large. Raise the limit" in done.stderr and "/" in done.stderr
    assert not results(ptrun.folder)
    again = ptrun(*RUN)
    assert again.returncode == 0 and len(results(ptrun.folder)) == 1, again.stderr
    (file,) = results(ptrun.folder)
    left = [own.name for own in file.parent.iterdir() if own.name.startswith(".")]
    assert left == []
