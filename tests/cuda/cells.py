"""What is tried on the disguised device: combinations of method, read-out, backbone and task.

`cells.txt` has combinations that cover every pair of `pairs`; `every` yields all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

LISTED = Path(__file__).with_name("cells.txt")
DATA = Path(__file__).parents[1] / "data"
TINY = ("roberta", "albert", "deberta", "llama", "mt5")
"""Families without a model in the package; random ones of a few thousand numbers stand for them."""
_FAMILY = {
    "pocket_gpt2": "causal",
    "tiny_llama": "causal",
    "pocket_t5": "seq2seq",
    "tiny_mt5": "seq2seq",
    "pocket_glm": "infilling",
}
_FILES = {"entity_choice": "record", "span_check": "wsc"}  # kinds without a pocket task
_MEMBERS = ("ner", "srl", "qa", "topics")  # of the task with several data sets
_ROWS = {"train": 8, "validation": 4, "test": 3}
_PRECISIONS = ("fp32", "bf16", "fp16")


_TAUGHT = ["readout.document=Ann sees a red boat and Ben sees a blue one on the old river."]


@dataclass(frozen=True, order=True)
class Cell:
    """A combination: a method with its read-out (as `ptrun grid` names both), and so on."""

    method: str
    backbone: str
    kind: str

    def __str__(self) -> str:
        return " | ".join(astuple(self))

    def overrides(self, folder: Path) -> list[str]:
        """Return the command line of a run of a few steps on a few rows; files go to `folder`."""
        from ptrun.planning.grid import TASKS

        name, _, readout = self.method.partition(", ")
        line = [f"method={name}", f"task={TASKS[self.kind]}", "hardware=gpu"]
        line += [f"readout={readout}"] if readout else []
        line += ["readout.pooler=none"] if self.kind == "multi" else []
        line += ["method.length=8"] if name == "cartridge" else []
        line += ["method.examples=2"] if name == "in_context" else []
        line += ["method.text='Say it.'"] if name == "instruction" else []
        line += _TAUGHT if name == "cartridge" or readout == "distillation" else []
        line += [f"hardware.precision={self.precision}", "train.batch_size=4"]
        line += ["train.max_steps=2", "train.eval_every=2", f"outputs={folder / 'outputs'}"]
        return [*line, *_backbone(self.backbone, folder), *_data(self.kind, folder)]

    @property
    def precision(self) -> str:
        """One of three, by the place of the method's letters; a T5 has no fp16."""
        allowed = _PRECISIONS[:2] if "t5" in self.backbone else _PRECISIONS
        return allowed[sum(map(ord, str(self))) % len(allowed)]


def _backbone(name: str, folder: Path) -> list[str]:
    if not name.startswith("tiny_"):
        return [f"backbone={name}"]
    from tests.conftest import write_tiny

    own = folder / name
    if not own.exists():
        write_tiny(own, name.removeprefix("tiny_"))
    return ["backbone=pocket_bert", f"backbone.path={own}"]


def _data(kind: str, folder: Path) -> list[str]:
    if kind not in _FILES:
        rows = ",".join(f"{split}:{count}" for split, count in _ROWS.items())
        places = [f"tasks.pocket_{one}." for one in _MEMBERS] if kind == "multi" else [""]
        return [f"+task.{place}source.rows={{{rows}}}" for place in places]
    own = folder / "data" / "superglue" / _FILES[kind]
    own.mkdir(parents=True, exist_ok=True)
    for split in ("train", "validation", "test"):
        (own / f"{split}.jsonl").write_bytes((DATA / f"{own.name}.jsonl").read_bytes())
    return [f"data_dir={folder / 'data'}", "protocol=paper"]


def every(folder: Path) -> Iterator[tuple[Cell, str | None]]:
    """Yield all combinations, each with the reason why it is refused, or None."""
    from ptrun.planning import grid

    for kind in _FILES:
        _data(kind, folder)
    data = folder / "data"
    for name in (*grid.BACKBONES, *(f"tiny_{kind}" for kind in TINY)):
        option, *path = _backbone(name, folder)
        given = (option.removeprefix("backbone="),)
        for cell in grid.cells(given, grid.TASKS, [*path, f"data_dir={data}"]):
            yield Cell(cell.method, name, cell.kind), cell.refused


def listed() -> list[Cell]:
    """Return the combinations of `cells.txt`."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    return [Cell(*line.split(" | ")) for line in lines if not line.startswith("#")]


def share(index: int, parts: int) -> list[Cell]:
    """Return a part of `listed`, by kind of task: a process generates the rows of each kind."""
    own = sorted(listed(), key=lambda cell: cell.kind)
    return own[len(own) * (index - 1) // parts : len(own) * index // parts]


def covering(cells: Sequence[Cell]) -> list[Cell]:
    """Return combinations that hold every pair of `pairs`, found greedily."""
    missing = {pair for cell in cells for pair in pairs(cell)}
    chosen = []
    while missing:
        best = max(sorted(cells), key=lambda cell: len(missing & pairs(cell)))
        chosen.append(best)
        missing -= pairs(best)
    return sorted(chosen)


def pairs(cell: Cell) -> set[tuple[str, str]]:
    """Return what a combination covers.

    A method moves its tensors by the family, and a kind of task by the read-out; every method with
    every kind is tried on the CPU (tests/command/test_grid.py).
    """
    method, _, readout = cell.method.partition(", ")
    family, readout = _FAMILY.get(cell.backbone, "masked"), readout or "own"
    with_kind = {(cell.kind, other) for other in (family, readout)}
    return with_kind | {(method, family), (method, readout), (cell.backbone, readout)}
