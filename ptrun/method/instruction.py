"""Instruction: one text before each row, and nothing learned.

A person wrote it, an optimizer of prompts found it (DSPy, GEPA), or the backbone proposes it from
demonstrations, as in APE (Zhou et al. 2023 §3.1, forward generation). A search over
`method.candidate` chooses on dev; APE scores on train, filters, and has a larger model propose.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate, writes
from ptrun.errors import UserError
from ptrun.files import from_json
from ptrun.method.base import Method
from ptrun.method.in_context import InContext
from ptrun.pattern.rendering import Piece
from ptrun.readout.base import Features, collate
from ptrun.task.own_pattern import text_of
from ptrun.task.setting import shots
from ptrun.types import Example

_ASKED = "In one sentence, the instruction that leads from each text above to its answer:"
_SHOWN, _LONGEST = 8, 48  # demonstrations, and tokens of a proposal


class Instruction(InContext):
    """Reads the backbone as it is, with an instruction before each row.

    Args:
        text: the instruction, or `@FILE` of several; None: the backbone proposes it.
        candidate: which one of the file, from 0, of GEPA's result the best; the seed of a proposal.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=instruction", "method.text=Judge the film.")
    >>> method.prime([])
    >>> method.record["instruction"], len(method.record["texts_before"])
    ('Judge the film.', 1)
    """

    may_differ = ("text", "candidate")

    def __init__(self, *run: Any, text: str | None = None, candidate: int = 0):
        super().__init__(*run, examples=0)
        if text is None and not writes(self.backbone.architecture):
            name = self.backbone.name
            raise UserError(f"backbone={name} writes no instruction; type method.text.")
        self.text, self.candidate = chosen(text, candidate), candidate
        self._train: Sequence[Example] = ()

    def room(self) -> int:
        """Return the longest row that leaves the instruction its tokens."""
        return super().room() - sum(map(len, self.readout.texts_before))

    def prime(self, train: Sequence[Example]) -> None:
        """Put the instruction before each row, or keep train for a proposal."""
        self._train = train
        if self.text is not None:
            readout: Any = self.readout
            readout.texts_before = [readout.encoder.block([Piece("literal", self.text)])]
            self.record = {"instruction": self.text, "texts_before": readout.texts_before}
        elif not train:
            raise UserError("instruction: no examples of train to propose one; type method.text.")

    def placed(self) -> None:
        """Let the loaded backbone propose an instruction, behind demonstrations and a request."""
        if self.text is not None or not self._train:
            return
        readout: Any = self.readout
        drawn = shots(self._train, min(_SHOWN, len(self._train)), self.candidate, "instruction")
        readout.texts_before = [*map(readout.demonstration, drawn)]
        pieces = [Piece("literal", _ASKED), Piece("mask", spaced=True)]
        row = readout.row(pieces, Method.room(self), answer=_LONGEST)
        device = self.backbone.model.get_input_embeddings().weight.device
        inputs = self.inputs(collate([Features("", [row], [])], None, device))
        tokenizer = self.backbone.tokenizer()
        ends = tuple(i for i in (tokenizer.eos_token_id, readout.end) if i is not None)
        decoding = Decoding(_LONGEST, ends=ends, temperature=1.0, top_p=0.9)
        (tokens,) = generate(self.backbone, inputs, decoding, [self.candidate])
        lines = tokenizer.decode(tokens, skip_special_tokens=True).split("\n")
        self.text = next((line.strip() for line in lines if any(map(str.isalpha, line))), None)
        if self.text is None:
            raise UserError(f"method.candidate={self.candidate}: the backbone wrote no words.")
        readout.kept.clear()
        self.prime([])

    @classmethod
    def fingerprint_config(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the node with the instruction in place of its file."""
        text = chosen(node.get("text"), node.get("candidate", 0))
        return node if text is None else {**node, "text": text, "candidate": 0}


def chosen(text: str | None, candidate: int) -> str | None:
    """Return the instruction that a run is given; None if the backbone proposes it."""
    texts = [] if text is None else [text]
    if text is not None and text.startswith("@"):
        content = text_of(Path(text[1:]).expanduser(), 10_000_000, "too large for instructions")
        try:
            lines = _of_state(from_json(content)) if text.endswith("json") else content.splitlines()
            if not (texts := [line.strip() for line in lines if line.strip()]):
                raise ValueError("it has no text")
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise UserError(
                f"{text}: {error}. Expected an instruction a line; or .json of a DSPy program with "
                "one predictor, of a candidate of GEPA with one component, or of GEPA's result."
            ) from error
    if candidate < 0 or (text is not None and candidate >= len(texts)):
        limit = "or more" if text is None else f"to {len(texts) - 1}"
        raise UserError(f"method.candidate is {candidate}; use 0 {limit} (method.text={text}).")
    return None if text is None else texts[candidate]


def _of_state(state: Any) -> list[str]:
    """Return the instructions that DSPy or GEPA saved; several parts of one are refused."""
    scores, candidates = state.get("val_aggregate_scores", [0]), state.get("candidates", [state])
    texts = []
    for _, parts in sorted(zip(scores, candidates, strict=True), key=lambda pair: -pair[0]):
        inner = [part for part in (parts, *parts.values()) if isinstance(part, dict)]
        signed = [part["signature"]["instructions"] for part in inner if "signature" in part]
        (text,) = signed or parts.values()
        texts.append(text)
    return texts
