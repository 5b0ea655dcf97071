"""Train on the disguised device, where steps are read late; print passes and reads, and waits."""

import json
import tempfile
from pathlib import Path

from ptrun.backbone.pretrained import PretrainedBackbone
from tests.conftest import write_data, write_tiny
from tests.cuda.events import EVENTS, WAIT
from tests.small_runs import sst2
from tests.training.test_late import undone


def main():
    with tempfile.TemporaryDirectory() as name:
        path = write_tiny(Path(name, "tiny"), "bert")
        backbone = PretrainedBackbone(name="tiny", path=str(path), dtype="fp32")
        backbone.load()
        order = undone(backbone, sst2(write_data(Path(name, "data"))), None, "cuda")
    waits = EVENTS.count(WAIT, "passes", "update", "step")
    print(json.dumps({"order": order, "waits": waits / EVENTS.entered["passes"]}))


if __name__ == "__main__":
    main()
