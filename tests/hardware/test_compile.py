"""`hardware.compile`: the same bits, and only where it pays."""

import pytest
import torch

from ptrun.backbone import dropout
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import WORTH, Compilation


@pytest.fixture(autouse=True)
def eager_after():
    yield
    dropout.activate(False)


@pytest.fixture
def compiler(monkeypatch):
    """Return a function that says which compiler there is."""
    return lambda name: monkeypatch.setattr(dropout, "compiler", lambda _device: name)


@pytest.mark.slow
@pytest.mark.skipif(dropout.compiler("cpu") is None, reason="compiler: torch finds none for C++")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch looks at it while compiling
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_dropout_has_the_same_bits(dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    keys = dropout.row_keys(1, 3, range(4))
    found = {}
    for compiled in (False, True):
        dropout.activate(compiled)
        values = []
        for rows, width, p, origin in ((4, 9, 0.1, 0), (3, 7, 0.25, 2), (1, 12, 0.1, 3)):
            x = torch.randn(rows, 2, 5, width, generator=torch.Generator().manual_seed(0))
            x = x.to(dtype).requires_grad_(True)
            out = dropout.drop(x, keys[:rows], 7, p, origin)
            out.float().square().sum().backward()
            values += [out.detach(), x.grad]
        found[compiled] = values
    assert all(torch.equal(a, b) for a, b in zip(*found.values(), strict=True))


def test_auto_compiles_once_training_is_long(compiler):
    compiler("g++")
    auto = Compilation("auto", "cuda")
    auto.consider(WORTH - 1)
    assert not dropout._active
    auto.consider(WORTH)
    assert dropout._active and not auto.pending


def test_auto_without_a_compiler_says_so_once(compiler, caplog):
    compiler(None)
    auto = Compilation("auto", "cuda")
    with caplog.at_level("INFO"):
        auto.consider(WORTH)
        auto.consider(WORTH)
    assert not dropout._active and len(caplog.records) == 1
    assert "no compiler" in caplog.text


@pytest.mark.parametrize(("requested", "device"), [(False, "cuda"), ("auto", "cpu")])
def test_false_and_auto_on_a_cpu_never_compile(compiler, requested, device):
    compiler("g++")
    never = Compilation(requested, device)
    never.consider(10 * WORTH)
    assert not dropout._active


def test_true_compiles_at_once_and_needs_a_compiler(compiler):
    compiler("g++")
    Compilation(True, "cpu")
    assert dropout._active
    compiler(None)
    with pytest.raises(UserError, match=r"install g\+\+"):
        Compilation(True, "cpu")


def test_a_failing_compiler_is_told_and_not_asked_again(monkeypatch, caplog):
    calls = []

    def broken(function, **_):
        def compiled(*_):
            calls.append(function)
            raise RuntimeError("Python.h: No such file or directory")

        return compiled

    monkeypatch.setattr(dropout, "_compiled", {})
    monkeypatch.setattr(torch, "compile", broken)
    dropout.activate(True)
    for _ in range(2):
        assert dropout.call(torch.neg, torch.tensor(2.0)) == -2
    assert calls == [torch.neg] and not dropout._active
    (line,) = caplog.messages
    assert "dropout is not compiled" in line and "Python.h" in line


@pytest.mark.parametrize("wrong", [lambda x: -x + 1, lambda x: 0 * x - x.detach()])
def test_compiled_code_of_other_numbers_or_gradients_is_not_used(monkeypatch, caplog, wrong):
    monkeypatch.setattr(dropout, "_compiled", {torch.neg: wrong})
    monkeypatch.setattr(dropout, "_proved", set())
    dropout.activate(True)
    for _ in range(2):
        assert dropout.call(torch.neg, torch.tensor(2.0)) == -2
    assert not dropout._active
    assert caplog.messages == [
        "dropout is not compiled, since its compiled code computes other numbers on cpu"
    ]


def test_memory_that_runs_out_is_no_failure_of_the_compiler(monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(dropout, "_compiled", {torch.neg: full})
    dropout.activate(True)
    with pytest.raises(torch.OutOfMemoryError):
        dropout.call(torch.neg, torch.tensor(2.0))


@pytest.mark.parametrize("missing", ["gcc", "Python.h"])
def test_triton_needs_a_c_compiler_and_the_headers_of_python(monkeypatch, tmp_path, missing):
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(dropout.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(dropout.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert dropout.compiler("cuda") == "triton"
    if missing == "gcc":
        monkeypatch.setattr(dropout.shutil, "which", lambda name: None)
    else:
        (tmp_path / "Python.h").unlink()
    assert dropout.compiler("cuda") is None
