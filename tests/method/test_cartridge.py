"""`method=cartridge`: a prefix that starts as the document, in PEFT's form and joined."""

import pytest
import torch

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.exporting.export import export
from ptrun.method.cartridge import Cartridge
from ptrun.predicting.answering import ready
from ptrun.runs.plan import plan
from ptrun.start.start import spread
from tests.exporting.runs import compared, moved, shipped
from tests.readings import reading
from tests.readout.test_distillation import FACT, LINE
from tests.readout.test_writing import told


def test_stock_peft_reads_it_as_a_cartridge(tmp_path):
    own = reading("distillation", document=FACT, max_new_tokens=24)
    backbone = shipped("pocket_gpt2")
    method = moved(
        lambda *given: Cartridge(*given, own, length=6, frozen_vectors=2), backbone, told(), by=0.1
    )
    form, found = compared(method, tmp_path / "adapter", method.task.load("test"))
    assert form.peft_type == "CARTRIDGE" and form.options["num_frozen_tokens"] == 2
    assert found.difference < 1e-4 and found.logits > 0


@pytest.mark.slow
def test_a_run_starts_from_peft_s_cartridge_and_from_another_run(tmp_path):
    done = ptrun.run(*LINE, f"outputs={tmp_path}")
    export(ready(str(done.folder), []), [], tmp_path / "adapter")
    wanted = done.prompt["prompt.prefix"]
    for start in (f"peft:{tmp_path / 'adapter'}", f"run:{done.folder}"):
        for frozen in ("null", "1"):
            typed = [f"start={start}", f"method.frozen_vectors={frozen}", "train.lr=1e-12"]
            other = ptrun.run(*LINE, *typed, f"outputs={tmp_path}")
            torch.testing.assert_close(other.prompt["prompt.prefix"], wanted, atol=1e-6, rtol=0)


def test_spread_tokens_come_from_the_whole_text_in_runs():
    ids = list(range(100))
    assert spread(ids, 100) == ids
    own = spread(ids, 40)
    assert len(own) == 40 and own == sorted({*own}) and own[0] == 0 and own[-1] == 99
    runs = [own[i : i + 10] for i in range(0, 40, 10)]
    assert all(run == list(range(run[0], run[0] + len(run))) for run in runs)
    assert spread(ids, 1) == [0] and spread(ids, 4) == [0, 33, 66, 99]


@pytest.mark.parametrize("start", [f"spread:{FACT * 2}", "demonstrations:3"])
def test_other_texts_start_it(start, tmp_path):
    done = ptrun.run(*LINE, f"start={start}", "train.lr=1e-12", f"outputs={tmp_path}")
    first = ptrun.run(*LINE, "train.lr=1e-12", f"outputs={tmp_path}")
    assert done.result.run_id != first.result.run_id
    prefix = done.prompt["prompt.prefix"]
    assert prefix.isfinite().all() and not torch.equal(prefix, first.prompt["prompt.prefix"])


def test_more_demonstrations_than_examples_are_refused(tmp_path):
    with pytest.raises(UserError, match="there are 16 examples in train"):
        ptrun.run(*LINE, "start=demonstrations:17", f"outputs={tmp_path}")


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["method.frozen_vectors=9"], r"frozen_vectors is 9; use 0 to method\.length=8"),
        (["method.frozen_vectors=-1"], "frozen_vectors is -1"),
        (
            ["start=random", "method.reparameterization=mlp"],
            "vectors that are computed cannot be frozen",
        ),
        (["method.stacks=[encoder]"], "method.stacks is"),
    ],
)
def test_what_is_no_prefix_of_a_document_is_refused(typed, said, tmp_path):
    with pytest.raises(UserError, match=said):
        plan(compose_run([*LINE, *typed])).build_method()


def test_words_without_a_document_are_refused():
    line = ["method=cartridge", "task=pocket_writing", "backbone=pocket_gpt2", "readout=writing"]
    with pytest.raises(UserError, match="start=context: no text"):
        plan(compose_run(line))
    with pytest.raises(UserError, match="needs readout=distillation"):
        plan(compose_run([*line, "start=random", "method.length=null"])).build_method()
