"""With this folder on PYTHONPATH, every Python process has the disguised device."""

import os

if os.environ.get("PTRUN_TEST_CUDA"):
    from tests.cuda import session

    session.begin()
