"""Rows that tools and people write: a text is learned and comes back, or the row is refused."""

import json
from functools import cache

import pytest

from ptrun.method.manual_prompt import ManualPrompt
from ptrun.task.own import Own
from tests.exporting.runs import shipped
from tests.readings import reading
from tests.small_runs import engine

BACKBONE, MOST = cache(shipped), 12
LONG = "word " * 200_000
GOOD = {"plain": ("What is it?", "A lamp."), "a number": ("How many?", 42)}
GOOD |= {"a fraction": ("How much?", 0.5), "several": ("What?", ["one", "two"])}
GOOD |= {"one in a list": ("What?", ["one"])}
GOOD |= {"as in SQuAD": ("What?", {"text": ["one"], "answer_start": [0]})}
GOOD |= {"lines": ("a\nb\tc", "first\n\nsecond\tthird"), "carriage returns": ("a\r\nb", "c\r\nd")}
GOOD |= {"an end mark in the answer": ("What?", "<|endoftext|> then more")}
GOOD |= {"an end mark alone": ("What?", "<|endoftext|>")}
GOOD |= {"an end mark in the text": ("<|endoftext|> What?", "yes")}
GOOD |= {"a mask in the text": ("What is [MASK] or {mask}?", "{mask}")}
GOOD |= {"braces": ("{text} {soft:2}", "{0} {}"), "emoji": ("Smile 🙂", "👩‍👩‍👧‍👦 family")}
GOOD |= {"emoji that are cut": ("Smile", "👩‍👩‍👧‍👦" * 30)}
GOOD |= {"right to left": ("שלום", "مرحبا بالعالم"), "Chinese": ("你好吗", "我很好")}
GOOD |= {"accents": ("e\u0301", "a\u030a"), "spaces inside": ("a", "two  spaces")}
GOOD |= {"a space that does not break": ("a", "one\u00a0two")}
GOOD |= {"zero width": ("a\u200bb", "c\u200bd"), "a byte order mark": ("\ufeffa", "b")}
GOOD |= {"quotes": ('say "it"', 'it\'s "so"'), "backslashes": ("C:\\dir", "\\n is not a line")}
GOOD |= {"markup": ("<b>bold</b>", "[red]x[/red]"), "a formula": ("=1+1", "=SUM(A1)")}
GOOD |= {"one letter": ("a", "b"), "a stop text in the question": ("what stop here", "go")}
GOOD |= {"a long question": (LONG, "yes"), "a long answer": ("What?", LONG)}
GOOD |= {"control characters": ("a\u0001b", "c\u0007d"), "a null character": ("a\u0000b", "c")}
GOOD |= {"true": ("What?", "True"), "nan as text": ("What?", "nan")}


@pytest.mark.parametrize("name", GOOD)
def test_a_text_is_learned_and_comes_back(name, tmp_path):
    question, answer = GOOD[name]
    rows, file = [{"q": "first", "a": "one"}, {"q": question, "a": answer}], tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = Own(None, train=str(file), text="q", answer="a")
    backbone = BACKBONE("pocket_gpt2")
    own = reading("writing", max_new_tokens=MOST, stop=["stop"])
    method = ManualPrompt(backbone, task, own)
    example = task.load("train")[1]
    (features,) = method.encode([example])
    limit = backbone.shape.positions
    assert len(features.rows[0].ids) <= limit and 0 < len(features.targets) <= MOST
    end = backbone.tokenizer().eos_token_id
    whole = features.targets[-1] == end
    assert features.targets.count(end) == whole and features.facts["cut"] is not whole
    shown, _ = method.readout.text(features.targets)
    if whole and "stop" not in example.target[0]:  # byte-level: nothing is unknown
        assert shown.split() == example.target[0].split()
    (found,) = engine(backbone).predict([method], [[features]])
    assert isinstance(found[0].value, str) and "stop" not in found[0].value
