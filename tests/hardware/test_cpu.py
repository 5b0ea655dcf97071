"""Settings of a process on the CPU."""

import os
import subprocess
import sys

NAMES = ["GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"]
SHOW = (
    "import os; from ptrun.hardware.environment import prepare; prepare();"
    f"print(*map(os.environ.get, {NAMES}))"
)


def shown(**typed):
    env = {**os.environ, **typed}
    for name in set(NAMES) - typed.keys():
        env.pop(name, None)
    done = subprocess.run([sys.executable, "-c", SHOW], env=env, capture_output=True, text=True)
    return done.stdout.split()


def test_threads_sleep_soon_and_few_kernels_are_kept():
    assert shown() == ["1000", "32", "32"]


def test_settings_of_the_user_stay():
    typed = dict(zip(NAMES, "079", strict=True))
    assert shown(**typed) == list("079")


def test_a_process_without_streams_prints_into_no_file_and_gives_its_children_some(tmp_path):
    """Files that are opened later get numbers of their own."""
    file = tmp_path / "kept"
    code = (
        "from ptrun.hardware.environment import open_streams; open_streams(); import os, sys\n"
        f"kept = open({str(file)!r}, 'w')\n"
        "for number in (1, 2):\n    os.write(number, b'lost')\n"
        "print('lost'); print('lost', file=sys.stderr); assert sys.stdin.read() == ''\n"
        "kept.write('whole'); kept.close(); import subprocess\n"
        "child = 'import os, sys; [os.fstat(n) for n in range(3)]; sys.stdout.flush()'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', child]).returncode)"
    )
    line = f'"{sys.executable}" -c "$CODE" <&- >&- 2>&-'
    done = subprocess.run(["sh", "-c", line], env={**os.environ, "CODE": code}, check=False)
    assert done.returncode == 0 and file.read_text() == "whole"
