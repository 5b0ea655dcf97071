"""Whole commands on the disguised device: from a plan to a result, a sweep, faults."""

import json
import re

import pytest

SMALL = ("method=ptuning_v2", "task=pocket_sentiment", "hardware=gpu")
SMALL += ("+task.source.rows={train:16,validation:8,test:8}",)
SMALL += ("train.max_steps=4", "train.eval_every=2", "method.length=4")


@pytest.fixture
def ptrun(disguised, tmp_path):
    """Run `ptrun` with a folder of outputs of its own."""
    return lambda *line, **env: disguised("-P", "-m", "ptrun", *line, CWD=tmp_path, **env)


def results(folder):
    return [json.loads(file.read_text()) for file in sorted(folder.rglob("result.json"))]


@pytest.mark.slow
def test_a_sweep_shares_passes_and_predicts(ptrun, tmp_path):
    common = [one for one in SMALL if not one.startswith("method")]
    ran = ptrun("-m", *common, "seed=1,2,3", "method=ptuning_v2,lora")
    assert ran.returncode == 0, ran.stderr
    done = results(tmp_path)
    assert len(done) == 6 and all(len(one["manifest"]["shared_with"]) == 2 for one in done)
    run = next(iter(sorted((tmp_path / "outputs").rglob("ptuning_v2*/result.json")))).parent
    (tmp_path / "new.csv").write_text("sentence\nA good book\nA bad one\n")
    line = ("predict", run, "--input", "new.csv", "--output", "out.csv", "hardware=gpu")
    assert ptrun(*line).returncode == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3


@pytest.mark.slow
def test_a_rank_of_zero1_ends_and_resumes_a_state_of_plain_torch(ptrun, tmp_path):
    stopped = ptrun(*SMALL, PTRUN_TEST_FAIL="update=CUDA out of memory. Tried to allocate 2 GiB")
    assert "the same command resumes" in stopped.stderr and not results(tmp_path)
    ran = ptrun(*SMALL, "hardware=zero1")
    assert ran.returncode == 0, ran.stderr
    assert "resuming from step 0 of 4" in ran.stderr and len(results(tmp_path)) == 1
    assert "WARNING" not in ran.stdout  # DeepSpeed prints about kernels that it cannot build


MEMORY = "out of memory. Tried"
FAULTS = [
    ("load", MEMORY, "out of memory for its weights: 1,181,824 parameters need"),
    ("load", "error: no kernel image is available", "this torch cannot use this GPU"),
    ("passes", MEMORY, "out of memory at step 1, with micro-batches of"),
    ("update", MEMORY, "in the optimizer: the moments of 4,"),
    ("step", "error: uncorrectable ECC error encountered", "CUDA reports an error"),
    ("evaluate", MEMORY, "out of memory in an evaluation, with micro-batches"),
]


@pytest.mark.slow
def test_a_fault_of_the_device_is_one_message_and_the_run_goes_on(ptrun, tmp_path):
    """Without the copy to the host, no run with a prompt could write its fingerprint."""
    for part, text, said in FAULTS:
        ran = ptrun(*SMALL, PTRUN_TEST_FAIL=f"{part}=CUDA {text}")
        assert ran.returncode == 1 and said in ran.stderr and "Traceback" not in ran.stderr, part
        assert ran.stdout == "" and not results(tmp_path)
    again = ptrun(*SMALL)
    assert again.returncode == 0, again.stderr
    (result,) = results(tmp_path)
    assert result["manifest"]["prompt"] and "cuda" in str(result["manifest"]["device"])


@pytest.mark.slow
def test_passes_before_training_that_do_not_fit_are_told(ptrun):
    line = (*SMALL, "method=idpg", "method.length=2")
    ran = ptrun(*line, PTRUN_TEST_FAIL="prepare=CUDA out of memory. Tried to allocate 2.00 GiB")
    assert ran.returncode == 1 and "out of memory in the passes before training" in ran.stderr


@pytest.mark.slow
def test_a_run_is_exported_to_peft(ptrun, tmp_path):
    """PEFT reads an adapter to the device by itself."""
    assert ptrun(*SMALL[1:-1], "method=lora", "readout.pooler=trainable").returncode == 0
    (run,) = (file.parent for file in tmp_path.rglob("result.json"))
    ran = ptrun("export", run, "--to", "peft", tmp_path / "adapter")
    found = re.search("differ by at most ([-+.e0-9]+)", ran.stdout)
    assert ran.returncode == 0 and found and float(found[1]) <= 1e-5, ran.stderr
