"""Run every script of scripts/reproduce in the pocket world and time it: `make nightly`.

    python benchmarks/scripts.py [NAME ...]

Each script gets +scale=pocket. It checks all cells, runs them and reports. Cells that become equal
at this scale run once. Writes results/scripts.json.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "scripts.json"


def timed(script: Path, outputs: str) -> dict[str, object]:
    """Run a script; return its exit status, seconds and lines about runs."""
    began = time.monotonic()
    line = [str(script), "+scale=pocket", f"outputs={outputs}"]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ})
    found = {"seconds": round(time.monotonic() - began, 1), "exit": done.returncode}
    runs = [own for own in done.stderr.splitlines() if re.match(r"\d+ runs?: ", own)]
    wrong = [own for own in done.stderr.splitlines() if own.startswith("ptrun:")]
    return {**found, "runs": runs, **({"wrong": wrong} if done.returncode else {})}


def main() -> None:
    """Run the named scripts, or all; figures of other scripts are kept."""
    wanted = sys.argv[1:]
    found = json.loads(RESULT.read_text()) if wanted and RESULT.exists() else {}
    with tempfile.TemporaryDirectory() as outputs:
        for script in sorted((ROOT / "scripts" / "reproduce").glob("*.sh")):
            if not wanted or script.stem in wanted:
                found[script.stem] = timed(script, outputs)
                print(script.stem, found[script.stem], flush=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    failed = [name for name, own in found.items() if own["exit"]]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
