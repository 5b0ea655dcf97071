"""Tasks whose answer is a text: rows, conversations, the user's own files, metrics."""

import json
import math

import pytest

from ptrun.config.build import build
from ptrun.errors import UserError
from ptrun.task.generation import Generation
from ptrun.task.own import Own
from ptrun.task.text_metrics import last_number, marked_answer, signatures, text_scores
from ptrun.types import Prediction
from tests.composing import task_node
from tests.tiers import package

TALK = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]


def write(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def own(tmp_path, rows, **keys):
    return Own(None, train=write(tmp_path / "rows.jsonl", rows), **keys)


def test_prompt_and_completion_become_examples(tmp_path):
    rows = [{"prompt": f"say {i}", "completion": [f"{i}", f"number {i}"]} for i in range(3)]
    task = own(tmp_path, rows, text="prompt", answer="completion")
    assert (task.kind, task.answer, task.labels) == ("generation", "text", [])
    first = task.load("train")[0]
    assert first.fields == {"prompt": "say 0"} and first.target == ["0", "number 0"]
    assert task.pvps["plain"] == {"pattern": "{~prompt} {mask}"}
    assert str(task.accounts["train"]) == "3 rows"


def test_other_columns_are_listed_once(tmp_path, caplog):
    caplog.set_level("INFO")
    rows = [{"talk": TALK, "id": 1, "source": "x", "date": 3}]
    own(tmp_path, rows, messages="talk").load("train")
    assert caplog.text.count("not read: date, source") == 1
    rows = [{"instruction": "a", "input": "b", "output": "c"}]
    own(tmp_path, rows, text="instruction", answer="output").load("train")
    assert "not read: input" in caplog.text


def test_an_empty_answer_is_counted_or_refused(tmp_path):
    rows = [{"a": "x", "b": "y"}, {"a": "x", "b": ""}]
    with pytest.raises(UserError, match="an empty cell"):
        own(tmp_path, rows, text="a", answer="b").load("train")
    task = own(tmp_path, rows, text="a", answer="b", empty="skip")
    assert len(task.load("train")) == 1
    assert task.accounts["train"].record()["left_out"] == {"an empty cell": 1}


def test_a_task_names_fields_or_messages():
    common = {"name": "t", "version": 1, "source": {"pocket": "pocket_writing"}}
    common["splits"] = {"train": "train", "dev": "validation", "test": "test"}
    with pytest.raises(UserError, match="name fields and target, or messages"):
        Generation(None, fields=["facts"], **common)


def scored(*pairs, metrics=("f1", "exact_match")):
    predictions = [Prediction(str(i), text) for i, (text, _) in enumerate(pairs)]
    return text_scores(metrics, predictions, [references for _, references in pairs])


def test_metrics_take_the_best_reference():
    found = scored(("The cat.", ["a dog", "cat"]), ("one two", ["one three"]))
    assert found == {"f1": 75.0, "exact_match": 50.0}


def test_overlap_is_that_of_the_packages():
    from rouge_score.rouge_scorer import RougeScorer
    from sacrebleu.metrics import BLEU, CHRF

    pairs = [("the cat sat on the mat", ["a cat sat on a mat", "the cat was on the mat"])]
    pairs += [("it rains", ["it is raining today"])]
    found = scored(*pairs, metrics=("rouge1", "rougeL", "bleu", "chrf"))
    scorer = RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
    for name in ("rouge1", "rougeL"):
        best = [max(scorer.score(r, text)[name].fmeasure for r in own) for text, own in pairs]
        assert found[name] == pytest.approx(100 * sum(best) / 2)
    texts, columns = [text for text, _ in pairs], [[p[1][0] for p in pairs], [pairs[0][1][1], None]]
    assert found["bleu"] == BLEU().corpus_score(texts, columns).score
    assert found["chrf"] == CHRF().corpus_score(texts, columns).score
    kept = signatures(("bleu", "rougeL"), [references for _, references in pairs])
    assert "version" in kept["bleu"] and kept["rougeL"].startswith("rouge-score ")


NUMBERS = {"18 - 9 = 9. The answer is: 18": 18, "so 1,234.5 dollars": 1234.5, "#### -3": -3}
NUMBERS |= {"The answer is 1/4.": 0.25, "The answer is 7.\nThen 9": 7, "none at all": None}


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
def test_the_last_number(text, number):
    assert last_number(text) == number


MARKED = {
    "so The answer is: 20/35": 20 / 35,
    "The final answer is $5%.": 5.0,
    "#### 1,000": "1,000",
}
MARKED |= {"The answer is: 7\nThen 9": 7.0, "The answer is: x/2": "x/2", "the number 7": None}
MARKED |= {"The answer is: 3/0": "3/0", "The answer is: 1. The answer is: 2 .": 2.0}


@pytest.mark.parametrize(("text", "answer"), MARKED.items())
def test_a_marked_answer_is_a_number_or_the_rest_of_its_line(text, answer):
    assert marked_answer(text) == answer


def test_a_text_without_a_mark_is_wrong():
    texts = [Prediction("a", "The answer is: 4.0"), Prediction("b", "4")]
    assert text_scores(("marked", "number"), texts, [["#### 4"], ["#### 4"]]) == {
        "marked": 50.0, "number": 100.0
    }  # fmt: skip


def test_loss_and_perplexity_are_a_token():
    figures = [{"loss": 6.0, "tokens": 2, "unfinished": 1.0}, {"loss": 2.0, "tokens": 6}]
    predictions = [Prediction("a", None, figures=own) for own in figures]
    found = text_scores(("f1",), predictions, [["x"], ["y"]])
    assert found == {"loss": 1.0, "perplexity": pytest.approx(math.e)}


def test_a_part_may_have_a_source_of_its_own(tmp_path):
    def rows(folder, split, **row):
        (tmp_path / folder).mkdir(exist_ok=True)
        write(tmp_path / folder / f"{split}.jsonl", [row] * 600)

    rows("metamathqa", "train", question="rephrased", answer="The answer is: 3")
    rows("gsm8k", "train", question="school", answer="#### 3")
    rows("gsm8k", "test", question="exam", answer="#### 4")
    task = build("task", task_node("metamathqa"), str(tmp_path))
    parts = {part: task.load(part) for part in ("train", "dev", "test")}
    asked = {part: own[0].fields["question"] for part, own in parts.items()}
    assert asked == {"train": "rephrased", "dev": "school", "test": "exam"}
    assert len(parts["dev"]) == 500  # the first rows of GSM8K's train
    read = {name: own.read for name, own in task.accounts.items()}
    assert read == {"train": 600, "gsm8k/train": 500, "gsm8k/test": 600}
    before = task.digest()
    rows("gsm8k", "test", question="exam", answer="#### 5")
    assert build("task", task_node("metamathqa"), str(tmp_path)).digest() != before


def test_all_sources_of_the_hub_are_named():
    task = build("task", task_node("metamathqa"), None)
    found = [own.name for own in task.repositories]
    assert found == ["meta-math/MetaMathQA", "openai/gsm8k", "openai/gsm8k"]


def test_formulas_are_compared_as_math_verify_reads_them():
    package("math_verify")
    texts = ["The answer is 1/2", r"so $\frac{3}{4}$", r"\boxed{x^2+1}", "no number", "4"]
    references = [["0.5"], ["0.75", "9"], ["$1+x^2$"], ["4"], ["5"]]
    predictions = [Prediction(f"{i}", text) for i, text in enumerate(texts)]
    assert text_scores(["math"], predictions, references) == {"math": 60.0}
    assert signatures(["math"], references)["math"].startswith("math-verify ")
