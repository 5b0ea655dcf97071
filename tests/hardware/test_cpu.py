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
