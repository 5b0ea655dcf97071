"""Load a model that ptrun exported, with torch, transformers, safetensors and perhaps PEFT alone.

    python load.py "a good film"          the label of a text, and the probability of each label
    python load.py "a text" "another"     the same for a pair of texts

In Python: `from load import load, answer`; `model, tokenizer = load()`; `model(**tokens)` returns
logits `[B, C]`. This file stands beside `head.json` and `head.safetensors`: the pooling of the last
hidden states and the layers over it, which no class of transformers has in this form.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer
from transformers.activations import ACT2FN

HERE = Path(__file__).parent


class TextLabeller(nn.Module):
    """A backbone, perhaps with an adapter, and a head over its last hidden states.

    Args:
        backbone: returns `last_hidden_state`, `[B, V + T, H]` with `V` learned vectors in front.
        facts: the content of `head.json`.
        tensors: the content of `head.safetensors`.
    """

    def __init__(self, backbone: nn.Module, facts: dict[str, Any], tensors: dict[str, Tensor]):
        super().__init__()
        self.backbone, self.facts = backbone, facts
        self.labels = nn.Linear(tensors["labels.weight"].shape[1], len(facts["labels"]))
        self.dense = nn.Linear(*tensors["dense.weight"].shape) if facts["activation"] else None
        stored = {n: tensor for n, tensor in tensors.items() if not n.startswith("backbone.")}
        missing, unknown = self.load_state_dict(stored, strict=False)
        wrong = [name for name in missing if not name.startswith("backbone.")] + unknown
        if wrong:
            raise ValueError(f"head.safetensors does not fit head.json: {', '.join(wrong)}")

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **more: Tensor) -> Tensor:
        """Return logits `[B, C]` of texts `[B, T]`."""
        if "decoder_start" in self.facts and "decoder_input_ids" not in more:
            start = input_ids.new_tensor(self.facts["decoder_start"])
            more["decoder_input_ids"] = start.expand(len(input_ids), -1)
        output = self.backbone(input_ids=input_ids, attention_mask=attention_mask, **more)
        vector = self.pooled(output, attention_mask)
        if self.dense is not None:
            vector = ACT2FN[self.facts["activation"]](self.dense(vector))
        logits: Tensor = self.labels(vector)
        return logits

    def pooled(self, output: Any, mask: Tensor) -> Tensor:
        """Return the vector of each text, `[B, H]`: a state, or the mean of those of its tokens."""
        pooling, states = self.facts["pooling"], output.last_hidden_state
        if pooling == "mean" and "decoder_start" in self.facts:
            states = output.encoder_last_hidden_state
        vectors: Tensor = states[:, self.facts["vectors"] :]
        if pooling == "mean":
            counted = mask[:, :, None].to(vectors.dtype)
            return (vectors * counted).sum(dim=1) / counted.sum(dim=1)
        if pooling == "first":
            return vectors[:, len(self.facts.get("decoder_start", [0])) - 1]
        last = (mask.cumsum(dim=1) * mask).argmax(dim=1)
        return vectors[torch.arange(len(vectors), device=vectors.device), last]


def load(folder: str | Path = HERE, base: str | Path | None = None) -> tuple[TextLabeller, Any]:
    """Return the model and its tokenizer.

    Args:
        folder: of this file.
        base: the folder or hub id of the backbone, in place of the one that was exported.
    """
    folder = Path(folder)
    facts = json.loads((folder / "head.json").read_text("utf-8"))
    if (folder / "adapter_config.json").is_file():
        from peft import PeftModel

        revision = {} if base or not facts["revision"] else {"revision": facts["revision"]}
        plain = AutoModel.from_pretrained(base or facts["base"], dtype=torch.float32, **revision)
        backbone: Any = PeftModel.from_pretrained(plain, folder)
    else:
        backbone = AutoModel.from_pretrained(folder, dtype=torch.float32)
    model = TextLabeller(backbone, facts, load_file(folder / "head.safetensors"))
    return model.eval(), AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def answer(model: TextLabeller, tokenizer: Any, *texts: str) -> dict[str, float]:
    """Return the probability of each label of a text or a pair; a number has one "label"."""
    most = model.facts["most_tokens"]
    tokens = tokenizer(*texts, truncation="longest_first", max_length=most, return_tensors="pt")
    logits = model(**tokens)[0]
    labels = model.facts["labels"]
    numbers = logits * model.facts["unit"] if len(labels) == 1 else logits.softmax(dim=-1)
    return dict(zip(labels, numbers.tolist(), strict=True))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit('Type: python load.py "a text"')
    shares = answer(*load(), *sys.argv[1:])
    print(max(shares, key=lambda label: shares[label]), json.dumps(shares, ensure_ascii=False))
