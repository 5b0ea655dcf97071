"""Print what one run enters between `main` and its `result.json`: functions by file, and records.

    python -m workshop.path method=ptuning_v2 task=pocket_ner train.max_steps=3 outputs=DIR

A function counts once, however often it is called. A record is a dataclass of ptrun, with the
number of those that were built. At the end stand the files and lines that the run imported.
"""

import argparse
import sys
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ptrun

ROOT = Path(ptrun.__file__).parent


@dataclass
class Entered:
    """What was entered so far."""

    functions: dict[str, set[CodeType]] = field(default_factory=lambda: defaultdict(set))
    records: Counter[str] = field(default_factory=Counter)
    ended: bool = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; the writer of the result ends it."""
        if self.ended:
            return
        code = frame.f_code
        if event == "call" and code.co_filename == "<string>" and code.co_name == "__init__":
            kind = type(frame.f_locals.get("self"))
            if kind.__module__.startswith("ptrun."):
                self.records[f"{kind.__module__}.{kind.__qualname__}"] += 1
        if not code.co_filename.startswith(f"{ROOT}/"):
            return
        place = str(Path(code.co_filename).relative_to(ROOT))
        if event == "call" and not code.co_name.startswith("<"):
            self.functions[place].add(code)
        self.ended = event == "return" and (place, code.co_name) == ("folder/result.py", "write")


def main() -> None:
    """Do the run that is typed, and print its path."""
    parser = argparse.ArgumentParser(
        prog="python -m workshop.path",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    overrides = parser.parse_args().overrides
    entered = Entered()
    from ptrun.cli import main as command

    sys.argv = ["ptrun", *overrides]
    threading.setprofile(entered)
    sys.setprofile(entered)
    try:
        command()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    if not entered.ended:
        raise SystemExit("no result.json was written; give outputs=DIR of a new folder")
    for place, codes in sorted(entered.functions.items(), key=lambda item: -len(item[1])):
        print(f"{len(codes):5}  {place}")
    every = sum(map(len, entered.functions.values()))
    print(f"{every:5}  functions in {len(entered.functions)} files")
    for record, count in entered.records.most_common():
        print(f"{count:5}  {record}")
    print(f"{len(entered.records):5}  kinds of records")
    loaded = {
        Path(module.__file__)
        for name, module in list(sys.modules.items())
        if name.startswith("ptrun") and module.__file__
    }
    lines = [len(file.read_text(encoding="utf-8").splitlines()) for file in loaded]
    full = [count for count in lines if count]
    print(f"imported: {len(full)} files that are not empty, {sum(full):,} lines")


if __name__ == "__main__":
    main()
