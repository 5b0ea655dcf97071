"""Settings of a process on the CPU."""

import os
import subprocess
import sys

SHOW = (
    "import os; from ptrun.hardware.environment import prepare; prepare();"
    "print(os.environ['GOMP_SPINCOUNT'], os.environ['ONEDNN_PRIMITIVE_CACHE_CAPACITY'])"
)


def shown(**typed):
    env = {**os.environ, **typed}
    for name in {"GOMP_SPINCOUNT", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"} - typed.keys():
        env.pop(name, None)
    done = subprocess.run([sys.executable, "-c", SHOW], env=env, capture_output=True, text=True)
    return done.stdout.split()


def test_threads_sleep_soon_and_few_kernels_are_kept():
    assert shown() == ["1000", "128"]


def test_settings_of_the_user_stay():
    assert shown(GOMP_SPINCOUNT="0", ONEDNN_PRIMITIVE_CACHE_CAPACITY="7") == ["0", "7"]
