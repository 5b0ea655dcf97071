import json, sys, gc, tempfile
from functools import cache
from pathlib import Path
from tests.cuda import session

session.start()
from ptrun.pocket import tasks

tasks.rows = cache(tasks.rows)
from tests.cuda import cells, grid
import transformers.models.bert.modeling_bert

gc.freeze()
out, which, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
folder = Path(tempfile.mkdtemp())
cachef = Path("/tmp/every.json")
if cachef.exists():
    every = [(cells.Cell(*c.split(" | ")), r) for c, r in json.loads(cachef.read_text())]
else:
    every = list(cells.every(folder))
    cachef.write_text(json.dumps([(str(c), r) for c, r in every]))
done = {json.loads(l)["cell"] for f in Path("/tmp").glob("gridc_*.jsonl") for l in f.open()}
todo = [(c, r) for c, r in every if str(c) not in done]
prio = lambda c: (
    c.kind not in ("multi", "facts", "span_check"),
    c.backbone not in ("tiny_mt5", "tiny_llama", "pocket_glm"),
)
live = sorted([c for c, r in todo if not r], key=prio)[which::parts]
print(len(every), len(todo), len(live), flush=True)
with open(out, "a") as f:
    if which == 0:
        for c, r in todo:
            if r:
                print(json.dumps({"cell": str(c), "outcome": f"refused: {r}"}), file=f, flush=True)
    for c in live:
        print(json.dumps({"cell": str(c), **grid.tried(c, folder)}), file=f, flush=True)
print("finished", flush=True)
