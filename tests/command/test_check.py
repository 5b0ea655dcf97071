"""`ptrun check` shows rows as the model reads them: every option, window, vector and decoder."""

import io
import json

import pytest
from rich.console import Console

from ptrun.config.compose import compose_run
from ptrun.exporting.stock_form import afterwards
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.planning.costs import method_of
from ptrun.planning.memory import Sizes
from ptrun.planning.preview import _labels, _marked, preview
from ptrun.readout.base import TokenRow
from ptrun.runs.plan import plan
from ptrun.types import Example
from tests.pattern import tokenizers
from tests.readings import reading
from tests.readout.reading import pocket, task


def lines(method, example):
    tokenizer = method.backbone.tokenizer()
    return [_marked(tokenizer, row) for row in method.encode([example])[0].rows]


def test_each_option_is_a_row_read_at_its_first_token(tiny, data_dir):
    data = task("race_middle", data_dir)
    shown = lines(PTuningV2(tiny(), data, length=2), data.load("train")[0])
    assert len(shown) == 4
    assert all(line.startswith("[reverse][CLS][/reverse]") for line in shown)
    assert all(line.count("reverse") == 2 for line in shown)


def test_where_every_token_is_read_none_is_marked(tiny, data_dir):
    data = task("squad", data_dir)
    (shown,) = lines(PTuningV2(tiny(), data, length=2), data.load("train")[0])
    assert "reverse" not in shown and shown.count("SEP") == 2


def test_a_learned_vector_that_is_read_is_both():
    row = TokenRow([5, 5, 6], reads=[1], softs=[0, 1])
    shown = _marked(tokenizers.bert(), row).split(" ")
    assert shown[:2] == ["[bold]<soft>[/bold]", "[reverse][bold]<soft>[/bold][/reverse]"]


def test_a_decoder_follows_its_text():
    backbone, data = pocket("pocket_t5"), task("pocket_sentiment")
    method = ManualPrompt(backbone, data, reading("verbalizer"))
    (shown,) = lines(method, data.load("train")[0])
    text, decoder = shown.split(" → ")
    assert "<extra_id_0>" in text and "reverse" not in text
    both = ["<pad>", "<extra_id_0>"]  # its start learns the sentinel, the sentinel the answer
    assert decoder.split() == [f"[reverse]{token}[/reverse]" for token in both]


def test_a_conversation_shows_what_is_learned_and_its_ends(tmp_path):
    turns = [("user", "{0} [b]5"), ("assistant", "7"), ("user", "more"), ("assistant", "6")]
    talk = json.dumps({"messages": [{"role": r, "content": text} for r, text in turns]})
    file = tmp_path / "chat.jsonl"
    file.write_text("".join(talk.replace("{0}", str(n)) + "\n" for n in range(40)))
    options = ["readout.chat_template=chatml", f"task.train={file}", "task.messages=messages"]
    typed = ["method=lora", "backbone=pocket_gpt2", "task=csv", *options]
    console = Console(width=200, file=io.StringIO())
    console.print(preview(plan(compose_run(typed)), afterwards))
    text = console.file.getvalue()
    assert "«learned» ⟦end⟧ context" in text
    assert "«7»⟦<|endoftext|>⟧" in text and "«6»⟦<|endoftext|>⟧" in text
    assert "[b]5" in text and text.count("«") == 7


def test_questions_without_an_answer_are_counted():
    examples = [Example(str(i), {}, []) for i in range(3)] + [Example("t", {}, ["O", "B-PER"])]
    assert _labels(examples) == "no answer 3, O 1, B-PER 1"


@pytest.mark.parametrize("typed", [("readout=verbalizer",), ()])
def test_rows_and_counts_are_those_of_the_run_s_read_out(typed):
    own = plan(compose_run(["task=pocket_sentiment", "method=prompt_tuning", *typed]))
    shown = "\n".join(str(one) for one in preview(own, afterwards).renderables).partition("\npvp ")[
        0
    ]
    assert ("[MASK]" in shown) == bool(typed)
    assert (Sizes(method_of(own)).learned["head"] == 0) == bool(typed)
