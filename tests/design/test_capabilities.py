"""Outside `backbone/` and `task/` nothing asks for the name of a family, model type or kind."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "ptrun"
OWNERS = ("backbone", "task", "tokenizer", "converting", "importing", "pocket")
NAMED = re.compile(
    r"(\.family|(task|data)\.kind|model_type\"\]|\bfamily) (==|!=|in|not in) "
    r"|(\.family|task\.kind|\"model_type\")\](\[|\.get)|\.get\((\w+\.)*(family|task\.kind)\b"
)


def test_what_a_model_or_task_can_do_decides():
    found = {
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in ROOT.rglob("*.py")
        if file.relative_to(ROOT).parts[0] not in OWNERS
        for line in file.read_text(encoding="utf-8").splitlines()
        if NAMED.search(line)
    }
    assert not found
