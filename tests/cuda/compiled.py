"""Compile the kernels for GPUs that are not here: registers, spills, shared memory.

python -m tests.cuda.compiled FILE       a JSON line for each case

The launcher itself chooses tiles and constants, as on a GPU; Triton's own ptxas compiles for the
named target. Nothing is launched.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone import launch

LIMITS = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory of a block, by compute capability."""
TYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
}
_PLAIN = "prefix drop"
_FEATURES = (
    *(_PLAIN, "evaluation", "prefix pmask drop", "bias drop", "bias rows drop", "drop"),
    *("packed prefix drop", "packed causal prefix drop", "packed causal grouped prefix drop"),
)
_ROWS, _HEADS, _TOKENS, _PREFIX = 4, 8, 80, 20


@dataclass(frozen=True)
class Case:
    """What a kernel is compiled for: the GPU, the type, the head size, and what attention has."""

    sm: int
    type: str
    head: int
    has: str


def cases() -> Iterator[Case]:
    """Yield every target with its types and head sizes, and every feature on two of them."""
    for sm in LIMITS:
        halves = ("bf16", "fp16") if sm >= 80 else ("fp16",)
        for name in (*halves, "fp32", *(("tf32",) if sm >= 80 else ())):
            for head in (64, 128) if name in ("fp16", "tf32") else (32, 64, 128, 256):
                yield Case(sm, name, head, _PLAIN)
        for name in (halves[0], "fp32"):
            for width in (32, 768, 1024, 8192):
                yield Case(sm, name, width, "lines")
    for sm in (80, 90):
        for has in _FEATURES[1:]:
            yield Case(sm, "bf16", 64, has)


class Target:
    """A driver of Triton that names a GPU and has none."""

    def __init__(self, sm: int):
        self.sm = sm

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.sm, 32)

    def get_current_device(self) -> int:
        return self.sm

    def get_current_stream(self, device: Any) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def is_active(self) -> bool:
        return True


def compiled(case: Case) -> list[dict[str, Any]]:
    """Return the kernels of a case: name, tiles, registers, spilled bytes, shared bytes."""
    import triton

    triton.runtime.driver.set_active(Target(case.sm))
    torch.set_float32_matmul_precision("high" if case.type == "tf32" else "highest")
    with _recorded() as rows:
        if case.has == "lines":
            _drop(case)
            return rows
        made = _launch(case)
        out, sums = made.forward()
        if case.has != "evaluation":
            known = {"GRAD": out, "SUMS": sums, "DELTAS": made.deltas(out, out)}
            made.queries(**known)
            made.keys(**known)
            if made.prefix_key is not None:
                made.prefix(**known)
    return rows


@contextmanager
def _recorded() -> Iterator[list[dict[str, Any]]]:
    """Compile launches instead of running them."""
    from ptrun.backbone import kernel_programs

    rows: list[dict[str, Any]] = []

    def start(name: str, _: int, given: dict[str, Any], __: Any, warps: int = 4,
              stages: int = 2) -> None:  # fmt: skip
        kernel = getattr(kernel_programs, name)
        options = {"num_warps": warps, "num_stages": stages}
        options |= {"enable_fp_fusion": True, "sanitize_overflow": False}
        own = {n: given[n] for n in kernel.arg_names}
        row = {"kernel": "prefix" if name == "keys" and not given["TEXT"] else name}
        row["tiles"] = f"{given.get('M', 1)}x{given['N']}/{warps}/{stages}"
        try:
            made = kernel.warmup(**own, grid=(1,), **options)
            rows.append(row | {"shared": made.metadata.shared, **_resources(made.asm["cubin"])})
        except Exception as error:  # Triton and ptxas share no error class
            rows.append(row | {"error": f"{type(error).__name__}: {str(error)[:200]}"})

    before, launch.start = launch.start, start
    try:
        yield rows
    finally:
        launch.start = before


def _drop(case: Case) -> None:
    """Start dropout of packed tokens, hidden states and attention weights, then norms."""
    from ptrun.backbone.dropout import Keyed, row_keys
    from ptrun.backbone.norm import add_norm

    keys, columns = row_keys(1, 2, range(_ROWS)), torch.arange(_TOKENS)
    x = torch.ones(_ROWS, 1, _TOKENS, case.head, dtype=TYPES[case.type])
    with launch.use(True):
        Keyed(keys, 7, 0.1, rows=columns % _ROWS, columns=columns)(x[0])
        Keyed(keys, 7, 0.1)(x[:, 0])
        Keyed(keys, 7, 0.1, origin=20)(x[..., :-3])
        norm = torch.nn.LayerNorm(case.head, dtype=x.dtype).requires_grad_(False)
        for keyed in (Keyed(keys, 7, 0.1, rows=columns % _ROWS, columns=columns), None):
            out = add_norm(x[0].requires_grad_(), x[0].detach(), norm, keyed)
            out.backward(out.detach())


def _launch(case: Case) -> Any:
    from ptrun.backbone.dropout import Keyed
    from ptrun.backbone.kernel import Launch, Terms
    from ptrun.backbone.packing import EVERY, LOOK_BACK, packing_of

    dtype, has = TYPES[case.type], case.has.split()
    lengths = [_TOKENS, _TOKENS - 7, _TOKENS - 16, _TOKENS - 17]
    mask = torch.arange(_TOKENS) < torch.tensor(lengths)[:, None]
    groups = 4 if "grouped" in has else 1
    packing, rows, tokens = None, _ROWS, _TOKENS
    if "packed" in has:
        packing = packing_of(mask, lengths, LOOK_BACK if "causal" in has else EVERY, 1)
        rows, tokens = 1, len(packing.rows)
    query = _vectors(rows, _HEADS, tokens, case.head, dtype)
    key, value = (_vectors(rows, _HEADS // groups, tokens, case.head, dtype) for _ in range(2))
    prefix = [None, None]
    if "prefix" in has:
        prefix = [_vectors(_ROWS, _HEADS // groups, _PREFIX, case.head, dtype) for _ in range(2)]
    bias = None
    if "bias" in has:
        bias = torch.zeros(_ROWS if "rows" in has else 1, _HEADS, tokens, tokens, dtype=dtype)
    terms = Terms(
        case.head**-0.5,
        None if packing else mask[:, None, None],
        bias,
        packing,
        Keyed(torch.arange(_ROWS), 2_000_001, 0.1) if "drop" in has else None,
    )
    seen = torch.ones(_ROWS, _PREFIX, dtype=torch.bool) if "pmask" in has else None
    return Launch(query, key, value, *prefix, seen, terms)


def _vectors(rows: int, heads: int, tokens: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Return `[rows, heads, tokens, width]` with the strides that a model's heads have."""
    return torch.zeros(rows, tokens, heads, width, dtype=dtype).transpose(1, 2)


def _resources(binary: bytes) -> dict[str, int]:
    """Return registers and spilled bytes of a thread, as ptxas left them."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        line = [str(tool), "-res-usage", file.name]
        said = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(REG|STACK):(\d+)", said))
    return {"registers": int(found["REG"]), "spilled": int(found["STACK"])}


def main() -> None:
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="ptrun_compiled_"))
    file = Path(sys.argv[1])
    known = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    done = [json.loads(line)["case"] for line in known]  # compiling takes a minute a case
    with file.open("a", encoding="utf-8") as opened:
        for case in cases():
            if asdict(case) in done:
                continue
            row = {"case": asdict(case), "kernels": compiled(case)}
            print(json.dumps(row), file=opened, flush=True)


if __name__ == "__main__":
    main()
