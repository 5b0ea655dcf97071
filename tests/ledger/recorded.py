"""What a run of a cell records, composed from the cell's own overrides."""

import tempfile
from functools import cache
from pathlib import Path

from ptrun.ledger.experiment import read
from ptrun.ledger.rows import compose


@cache
def recorded(table, key, *typed):
    """Return names and configuration of a run of a cell; `typed` are further overrides."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.yaml"
        file.write_text(table)
        experiment = read(file)
    cell = next(cell for cell in experiment.cells if cell.key == key)
    made = compose([*experiment.overrides(cell), *typed])
    return {"names": dict(made.names), "config": dict(made.settings)}
