"""Run a command of ptrun on the disguised device, and print what happened there.

python -m tests.cuda COMMAND ...
python -m tests.cuda method=lora task=pocket_ner hardware=gpu
"""

import json
import os
import sys
from dataclasses import asdict

from tests.cuda import session


def main() -> int:
    """Run `ptrun` with the arguments; print events as JSON lines on the error output."""
    session.start(os.environ.get("PTRUN_TEST_KERNEL", "emulate"))
    from tests.cuda.events import EVENTS

    for entry in filter(None, os.environ.get("PTRUN_TEST_FAIL", "").split("|")):
        part, _, text = entry.partition("=")
        EVENTS.fail[part] = text
    from ptrun.cli import main as ptrun

    with session.on_device():
        try:
            code = ptrun()
        except SystemExit as ended:
            code = int(ended.code or 0)
    for event, count in EVENTS.seen.most_common():
        print(json.dumps({**asdict(event), "count": count}), file=sys.stderr)
    print(json.dumps(dict(EVENTS.entered)), file=sys.stderr)
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main())
