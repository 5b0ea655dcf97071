"""What the disguised device must refuse or count; run in a process that has it.

Prints one JSON object: by check, `ok` or what went wrong.
"""

import json
import traceback

import torch
from torch.nn import functional

from tests.cuda.events import EVENTS, LIBRARY, ORDER, UPLOAD, WAIT
from tests.cuda.rules import CudaRefuses

X = torch.arange(6, dtype=torch.float32).view(2, 3)


def refused(run, *kinds):
    try:
        run()
    except kinds:
        return
    raise AssertionError("it passed")


def counted(kind, run):
    EVENTS.clear()
    run()
    return EVENTS.count(kind)


def check_numbers_are_those_of_the_cpu():
    layer = torch.nn.Linear(3, 4)
    slope = functional.gelu(layer(X)).sum()
    slope.backward()
    there = torch.nn.Linear(3, 4)
    there.load_state_dict(layer.state_dict())
    there.to("cuda")
    total = functional.gelu(there(X.to("cuda"))).sum()
    total.backward()
    assert total.is_cuda and there.weight.grad.is_cuda
    assert torch.equal(total.cpu(), slope)
    assert torch.equal(there.weight.grad.cpu(), layer.weight.grad)


def check_reads_on_the_host_need_a_copy():
    refused(X.to("cuda").numpy, TypeError)


def check_two_devices_do_not_mix():
    there = X.to("cuda")
    refused(lambda: there + X, CudaRefuses)
    refused(lambda: torch.cat([there, X]), CudaRefuses)
    assert (there + torch.tensor(1.0)).is_cuda  # a number may be on the CPU


def check_a_generator_of_the_cpu_is_refused():
    refused(
        lambda: torch.randn(2, device="cuda", generator=torch.Generator()),
        CudaRefuses,
        RuntimeError,
    )


def check_products_of_integers_are_refused():
    there = X.long().to("cuda")
    refused(lambda: there @ there.T, CudaRefuses)


def check_a_fused_step_that_stayed_on_the_cpu_is_refused():
    weight = torch.nn.Parameter(X.to("cuda"))
    weight.grad = torch.ones_like(weight)
    adam = torch.optim.AdamW([weight], fused=True)
    adam.step()
    adam.state[weight]["step"] = torch.tensor(1.0)
    refused(adam.step, CudaRefuses, RuntimeError)


def check_waits_are_counted():
    there = X.to("cuda")
    for run in (
        lambda: float(there.sum()),
        there.tolist,
        there.cpu,
        lambda: there[there > 2],
        lambda: there[torch.tensor([0])],
        lambda: there.nonzero(),
        lambda: torch.ones(2, device="cuda").repeat_interleave(torch.ones(2, device="cuda").long()),
    ):
        assert counted(WAIT, run) == 1, run
    assert counted(WAIT, lambda: there[there.long()[0, :1]]) == 0


def check_uploads_are_counted_unless_pinned():
    assert counted(UPLOAD, lambda: torch.tensor([1], device="cuda")) == 1
    assert (
        counted(UPLOAD, lambda: torch.tensor([1]).pin_memory().to("cuda", non_blocking=True)) == 0
    )


def check_open_orders_are_counted():
    there, index = X.to("cuda"), torch.tensor([0, 0, 0], device="cuda")
    out = torch.zeros(2, 1, device="cuda")
    assert counted(ORDER, lambda: out.index_add(1, index, there)) == 1
    apart = torch.tensor([0, 0, 1], device="cuda")  # a sum of two has one value
    wide = torch.zeros(2, 2, device="cuda")
    assert counted(ORDER, lambda: wide.index_add(1, apart, there)) == 0
    assert counted(ORDER, lambda: there.cumsum(0)) == 1
    twice = torch.zeros(2, device="cuda")
    assert counted(ORDER, lambda: twice.index_put((apart,), there[0])) == 1


def check_open_algorithms_are_counted():
    lstm = torch.nn.LSTM(3, 3).to("cuda")
    assert counted(LIBRARY, lambda: lstm(X[None].to("cuda"))) > 0
    with torch.backends.cudnn.flags(enabled=False):
        assert counted(LIBRARY, lambda: lstm(X[None].to("cuda"))) == 0
    there = X.view(1, 1, 2, 3).to("cuda").requires_grad_(True)

    def attend():
        functional.scaled_dot_product_attention(there, there, there)

    assert counted(LIBRARY, attend) == 1
    with torch.no_grad():
        assert counted(LIBRARY, attend) == 0


def check_a_capture_refuses_what_a_gpu_refuses_and_is_replayed():
    there, kept = X.to("cuda"), []
    for run in (
        lambda: there.sum().item(),
        there.tolist,
        there.nonzero,
        lambda: X.pin_memory().to("cuda", non_blocking=True),
        lambda: torch.randn(2, device="cuda"),
    ):

        def captured(run=run):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                run()

        refused(captured, CudaRefuses, RuntimeError)
    graph, factor = torch.cuda.CUDAGraph(), 2.0
    with torch.cuda.graph(graph):
        kept.append((there * factor).relu_()[:, 1])
    there.add_(1)
    factor = 3.0  # a number of the capture stays
    graph.replay()
    assert kept[0].cpu().tolist() == ((X + 1) * 2)[:, 1].tolist()


def check_a_part_of_a_run_can_fail():
    EVENTS.fail["there"] = "CUDA out of memory. Tried to allocate 2.00 GiB"
    with EVENTS.within("there"):
        refused(lambda: torch.zeros(1, device="cuda"), torch.OutOfMemoryError)
    EVENTS.fail.clear()


def main():
    found = {}
    for name, check in [(n, c) for n, c in globals().items() if n.startswith("check_")]:
        try:
            check()
            found[name] = "ok"
        except Exception:
            found[name] = traceback.format_exc(limit=3)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
