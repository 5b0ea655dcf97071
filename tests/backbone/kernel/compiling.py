"""Compiles the kernels for a GPU that is not here, with the arguments of real calls."""

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ptrun.backbone import kernel_programs
from ptrun.backbone.base import Prefix
from ptrun.backbone.kernel import Keyed, Launch, Terms, attention

POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.uint8: "*u8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
CASES = [
    (torch.bfloat16, 64, True),
    (torch.bfloat16, 256, False),
    (torch.float32, 64, True),
]


def report(capability):
    """Print each kernel with the shared memory that it needs."""
    for dtype, width, biased in CASES:
        for kernel, given in recorded(dtype, width, biased):
            done = compiled(kernel, given, capability)
            print("kernel", kernel.fn.__name__, str(dtype), width, done.metadata.shared)


def recorded(dtype, width, biased):
    """Return the kernels of one attention and its gradients with their arguments; none starts."""
    starts, whole = [], Launch._run

    def record(self, name, given, *_, **__):
        kernel = getattr(kernel_programs, name)
        starts.append((kernel, given | {"blocks": 1}))

    Launch._run = record
    rows, heads, tokens, length = 2, 4, 130, 3
    vectors = [torch.empty(rows, heads, tokens, width, dtype=dtype)]
    vectors += [
        torch.empty(rows, 2, n, width, dtype=dtype) for n in (tokens, tokens, length, length)
    ]
    query, key, value, before, old = (own.requires_grad_() for own in vectors)
    mask = torch.ones(rows, 1, tokens, tokens, dtype=torch.bool)
    bias = torch.empty(1, heads, tokens, tokens, dtype=dtype) if biased else None
    terms = Terms(0.1, mask, bias, None, Keyed(torch.arange(rows), 17, 0.1))
    attention(query, key, value, Prefix(before, old), terms).sum().backward()
    Launch._run = whole
    return starts


def compiled(kernel, given, capability):
    """Return a kernel compiled as Triton does at its first start with these arguments."""
    types, constants, facts = {}, {}, {}
    for index, (parameter, name) in enumerate(zip(kernel.params, kernel.arg_names, strict=True)):
        value, fixed = given[name], parameter.do_not_specialize
        if (
            parameter.is_constexpr
            or value is None
            or (type(value) is int and value == 1 and not fixed)
        ):
            types[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            types[name] = POINTERS[value.dtype]
            facts[index,] = [["tt.divisibility", 16]]
        else:
            types[name] = "fp32" if isinstance(value, float) else "i32"
            if type(value) is int and value % 16 == 0 and not fixed:
                facts[index,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, types, constants, facts)
    options = {"num_warps": given["warps"], "num_stages": given["stages"]}
    options |= {"enable_fp_fusion": True, "sanitize_overflow": False}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
