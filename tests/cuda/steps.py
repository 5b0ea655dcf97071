"""What a training step of a BERT of 12 layers sends to the disguised device.

python -m tests.cuda.steps METHOD ...     prints one JSON object for each

Operations of torch but views, programs of ptrun's own and replayed graphs count as one each;
allocations are operations here, though they launch nothing.
"""

import json
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest.mock import patch

from tests.cuda import session

STEP = 4


def counted(method, folder, *, most):
    """Return what the fourth step sends by kind; `most` sizes are captured."""
    from ptrun.config.compose import compose_run
    from ptrun.hardware.torch_engine import TorchEngine
    from ptrun.runs.launch import launch
    from ptrun.training import graphs
    from tests.cuda.events import EVENTS, REPLAY
    from tests.cuda.launches import aten, launches

    graphs.MOST, counts, step = most, Counter(), TorchEngine._step

    def watched(self, members):
        if members[0].step + 1 != STEP:
            return step(self, members)
        replays = EVENTS.count(REPLAY)
        with launches(free=(aten.detach, aten._unsafe_view, aten.alias)) as started:
            tokens = step(self, members)
        counts.update("programs" if name == "kernel" else "operations" for name in started)
        counts["graphs"] = EVENTS.count(REPLAY) - replays
        return tokens

    length = [] if method == "lora" else ["method.length=20"]
    line = [f"method={method}", *length, "task=pocket_sentiment", "hardware=gpu"]
    line += [f"backbone.path={model(folder)}", "backbone.dropout=0.1"]
    line += ["backbone.attention_dropout=0.1", "train.batch_size=8", f"train.max_steps={STEP + 1}"]
    line += ["+task.source.rows={train:8,validation:4,test:3}", f"outputs={folder}/{most}"]
    with session.on_device(), patch.object(TorchEngine, "_step", watched):
        done = launch(compose_run(line))
    assert done.status == "finished", done.reason
    return counts


def model(folder):
    """Return the folder of a BERT with the layers of BERT-base and small ones."""
    from transformers import BertConfig, BertForMaskedLM

    from ptrun.backbone.files import SHIPPED

    pocket, own = SHIPPED / "pocket_bert", folder / "bert"
    if not own.exists():
        words = json.loads((pocket / "config.json").read_text())["vocab_size"]
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
        BertForMaskedLM(BertConfig(vocab_size=words, **sizes)).save_pretrained(own)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(pocket / file, own)
    return own


def main():
    session.start()
    with tempfile.TemporaryDirectory() as folder:
        for method in sys.argv[1:]:
            row = {"launched": counted(method, Path(folder, method), most=0)}
            row["replayed"] = counted(method, Path(folder, method), most=6)
            print(json.dumps({"method": method, **row}), flush=True)


if __name__ == "__main__":
    main()
