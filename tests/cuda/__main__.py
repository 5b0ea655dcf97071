"""Run a command line on the disguised device, with all processes that it starts.

python -m tests.cuda ptrun method=lora task=pocket_ner hardware=gpu
PTRUN_TEST_FAIL='evaluate=CUDA out of memory' python -m tests.cuda ptrun ...
"""

import os
import sys

from tests.cuda.session import environment

if __name__ == "__main__":
    module = ["-P", "-m", "ptrun"] if sys.argv[1] == "ptrun" else []
    own = sys.argv[2:] if module else sys.argv[1:]
    os.execve(sys.executable, [sys.executable, *module, *own], environment(os.environ))
