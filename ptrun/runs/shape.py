"""The shape of a run: what the runs of a group, which share passes of one backbone, have in common.

That is the backbone, task, precision and the options of the method. They may differ in what a
member of a population decides on its own: seeds, examples, start, all of `train`, and the options
that a method lists in `may_differ`.
"""

import json
from typing import Any

from ptrun.runs.plan import Plan

_OWN = ("seed", "data_seed", "setting", "start", "train", "trial", "method", "backbone", "data")
_READOUT = "readout"


def shape(planned: Plan) -> str | None:
    """Return what the runs of a group have in common; None if the run is done alone."""
    own: Any = planned.method.target
    shared = own.shares(planned.method.node, planned.backbone)
    reading: Any = planned.readout.build()
    alone = planned.start.tuned is not None or planned.hardware.divides or reading.whole
    if shared is None or alone:
        return None
    common = {k: v for k, v in planned.content.items() if k not in (*_OWN, _READOUT)}
    read = {k: v for k, v in planned.readout.node.items() if k not in reading.may_differ}
    facts = {
        "common": common,
        "method": shared,
        "backbone": [planned.content["backbone"], planned.backbone_path],
        "commit": hub.recorded if (hub := planned.backbone.repository) else None,
        _READOUT: read,
        "pooler": _random_pooler(planned),
        "hardware": planned.engine_component.node,
        "tracking": planned.tracking.node,
        "outputs": str(planned.outputs.absolute()),
    }
    return json.dumps(facts, sort_keys=True, default=str)


def _random_pooler(planned: Plan) -> int | None:
    """Return the seed of a pooler that the files lack: it is a part of the backbone."""
    drawn = planned.readout.node.get("pooler") == "frozen" and not planned.backbone.has_pooler
    return planned.seed if drawn else None
