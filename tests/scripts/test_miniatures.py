"""Every script does its work in miniature; `make gpu ARGS=--small` has those of a GPU."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.cuda import device
from tests.tiers import package

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "ptrun" / "pocket" / "models"
BIN = Path(sys.executable).parent
SHORT = ["train.max_steps=2", "train.eval_every=2"]
pytestmark = pytest.mark.slow
CODE = """\
import os, runpy, subprocess, sys
subprocess.Popen = subprocess.Popen.__base__  # what a script starts is no fork of it
del sys.argv[0]
sys.path[:1] = [sys.argv[0].rpartition("/")[0], os.environ["PYTHONPATH"]]
run = runpy.run_path if "/" in sys.argv[0] else runpy.run_module
run(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def weights(tmp_path):
    """Return a folder like that of `make weights`, with pocket models in it."""
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "minilm_l6").symlink_to(MODELS / "pocket_bert")
    shutil.copytree(MODELS / "pocket_gpt2", folder / "smollm2_135m")
    file = folder / "smollm2_135m" / "tokenizer_config.json"
    turns = (
        "{% for turn in messages %}{{ turn.role }}: {{ turn.content }}{{ eos_token }}{% endfor %}"
    )
    turns += "{% if add_generation_prompt %}assistant: {% endif %}"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": turns}))
    return folder


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.fixture
def done(warm, tmp_path):
    """Return a function that runs a script, or a module of the workshop, and gives its output."""

    def run(script, *line):
        script = script if script.startswith("workshop") else ROOT / script
        path = {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        with warm.start(
            ["-c", CODE, *map(str, [script, *line])], tmp_path, path, seconds=600
        ) as started:
            code = started.wait()
        assert code == 0, started.out + started.err
        return started.out

    return run


FILES = {
    "cards.py --only|T5-XXL, prompt tuning": "cards.md",
    "chat_templates.py": "chat_templates.md",
    "dropout_share.py --repeats 1 --shape tiny": "dropout_share.md",
    "growth.py long_texts --sizes 10": "growth.md growth.json",
    "model_types.py --types gemma": "model_types.md",
    "nightly.py ptuning/table1": "nightly.json",
    "plan_memory.py MiniLM 480 --length 16": "plan_memory.json plan_memory.md",
    "pocket_backbones.py": "pocket_backbones.json",
    "ranks.py --model pocket_bert --repeats 1 --layouts one --steps 2 4": "ranks.json",
    "report_speed.py --runs 20 --repeats 1": "report_speed.json",
    "scale.py --kills 0 --seeds 1 --devices 1 --set cell=*RTE": "scale.json",
    "sweep_speed.py --shape tiny --runs 2 --steps 4": "sweep_speed.json",
}


@pytest.mark.parametrize("typed", FILES, ids=lambda typed: typed.split()[0])
def test_a_benchmark_writes_its_results(done, typed, out):
    first, _, last = typed.partition("|")
    line = [*first.split(), *([last] if last else []), "--out", out]
    done(f"benchmarks/{line[0]}", *line[1:])
    assert {file.name for file in out.iterdir()} == set(FILES[typed].split())


def test_claims_are_learned_and_judged(done, tmp_path, out):
    line = ["--only", "depth, NER", "--seeds", "1", "--outputs", tmp_path / "runs", "--out", out]
    done("benchmarks/learning.py", *line, "--set", *SHORT)
    assert (out / "learning.md").is_file()
    told = done("benchmarks/headlines.py", *line, "--set", *SHORT)
    assert "one seed, no verdict" in told and (out / "claims.md").is_file()


def test_a_claim_on_real_weights_has_its_row(done, tmp_path, out, rows, weights):
    line = ["--data", rows, "--weights", weights, "--outputs", tmp_path / "runs", "--out", out]
    done("benchmarks/claims_real.py", *line, "--only", "SmolLM2 writes sums: zero-shot")
    assert "1 of " in (out / "claims_real.md").read_text()


def test_formats_of_weights_are_compared(done, out, rows, weights):
    line = ["--data", rows, "--weights", weights, "--models", "minilm_l6", "--methods", "PT"]
    line += ["--formats", "fp32", "--steps", "1", "--out", out]
    done("benchmarks/quantization.py", *line)
    assert "| minilm_l6 | PT | fp32 |" in (out / "quantization.md").read_text()


def test_prefixes_for_a_document_are_compared(done, out, rows, weights):
    line = ["--data", rows, "--weights", weights / "smollm2_135m", "--tokens", "200"]
    line += ["--questions", "2", "2", "--only", "untrained, random", "--out", out, "--set", *SHORT]
    line += ["method.length=4", "readout.self_study=4", "readout.chunk=20"]
    done("benchmarks/cartridges.py", *line)
    assert "| untrained, random |" in (out / "cartridges.md").read_text()


def test_combinations_are_tried_on_a_device_that_is_not_there(done, out):
    if reason := device.missing():
        pytest.skip(f"disguised CUDA device: {reason}")
    line = ["--only", "combinations", "--share", "45", "--out", out]
    done("benchmarks/cuda_grid.py", *line)
    assert json.loads((out / "cuda_grid.json").read_text())["combinations"]["tried"]


def test_a_mutant_is_tried(done, out):
    package("mutmut")
    line = ["--modules", "folder/store", "--sample", "1", "--out", out]
    assert "| `folder/store` |" in done("benchmarks/mutation.py", *line)


def test_models_that_are_there_are_left_alone(done, weights):
    done("scripts/weights.py", "--out", weights)
    assert {file.name for file in weights.iterdir()} == {"minilm_l6", "smollm2_135m"}


def test_a_part_of_the_drill_writes_its_page(done, out):
    line = ["--parts", "damage", "--kinds", "prompt, predict", "--places", "1", "--lanes", "1"]
    done("workshop.drill", *line, "--out", out)
    assert "prompt, predict" in (out / "faults.md").read_text()


def test_a_target_is_fuzzed(done):
    told = done("workshop.fuzz", "--only", "metrics", "--examples", "2")
    assert "`metrics`" in told
