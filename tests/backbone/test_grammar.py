"""What a grammar leaves of a row's tokens, over the tokenizers that write texts."""

import json
import random
from pathlib import Path

import pytest
import torch

from ptrun.backbone import tokenizers
from ptrun.backbone.grammar import Grammar, GrammarError, spelled
from tests.tiers import package

package("llguidance")
POCKET = Path(tokenizers.__file__).parents[1] / "pocket" / "models"
KINDS = {"pocket_gpt2": "gpt2", "pocket_t5": "t5"}
OBJECT = {
    "type": "object",
    "properties": {"total": {"type": "integer", "maximum": 999}, "word": {"enum": ["é", "ok"]}},
    "required": ["total", "word"],
    "additionalProperties": False,
}
X = {"x-guidance": {"whitespace_flexible": False}}
JSON = f"start: %json {json.dumps(OBJECT | X)}"


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return tokenizers.load(POCKET / request.param, KINDS[request.param])


def text_of(grammar, tokenizer, width, seed):
    """Return what random scores write, and whether it has an end."""
    dice, written = torch.Generator().manual_seed(seed), []
    for _ in range(80):
        scores = grammar(written, torch.rand(width, generator=dice))
        written.append(int(scores.argmax()))
        if written[-1] in grammar.ends:
            return tokenizer.decode(written[:-1], clean_up_tokenization_spaces=False), written
    raise AssertionError("no end")


def ends_of(tokenizer):
    return [tokenizer.eos_token_id]


def test_random_scores_write_what_the_grammar_says(tokenizer):
    for seed in range(20):
        grammar = Grammar(tokenizer, ends_of(tokenizer), JSON)
        value = json.loads(text_of(grammar, tokenizer, len(tokenizer), seed)[0])
        assert [*value] == ["total", "word"] and value["word"] in ("é", "ok"), value
        assert value["total"] <= 999


def test_more_scores_than_tokens_are_never_taken(tokenizer):
    width = len(tokenizer) + 60
    scores = Grammar(tokenizer, ends_of(tokenizer), JSON)([], torch.zeros(width))
    assert torch.isinf(scores[len(tokenizer) :]).all() and not torch.isinf(scores).all()


def test_a_row_that_goes_back_is_read_again(tokenizer):
    ends = ends_of(tokenizer)
    _, written = text_of(Grammar(tokenizer, ends, JSON), tokenizer, len(tokenizer), 3)
    grammar, scores = Grammar(tokenizer, ends, JSON), torch.rand(len(tokenizer))
    places = [*range(len(written))] * 2
    random.Random(0).shuffle(places)
    for place in places:
        fresh = Grammar(tokenizer, ends, JSON)
        assert torch.equal(grammar(written[:place], scores), fresh(written[:place], scores))


def test_all_ends_may_follow_a_whole_text_and_nothing_else(tokenizer):
    ends = [tokenizer.eos_token_id, 7]
    grammar = Grammar(tokenizer, ends, 'start: "" | "a"')
    (a,) = tokenizer.convert_tokens_to_ids(["a"])
    allowed = (~torch.isinf(grammar([a], torch.zeros(len(tokenizer))))).nonzero()
    assert allowed.flatten().tolist() == sorted(ends)
    after = torch.rand(len(tokenizer))
    assert torch.equal(grammar([a, ends[0], 0], after), after)  # a row that has its end


def test_special_tokens_are_spelled_apart():
    tokenizer = tokenizers.load(POCKET / "pocket_gpt2", "gpt2")
    tokenizer.add_special_tokens({"extra_special_tokens": ["[CALL]"]})
    tokenizer.add_tokens(["<call>"])
    number = len(tokenizer) - 2
    ends = ends_of(tokenizer)
    rule = spelled(tokenizer, ends, 'a "b\n[CALL] <call>{')
    assert rule == rf'"a \"b\n" <[{number}]> " " <[{number + 1}]> "{{"'
    text, _ = text_of(Grammar(tokenizer, ends, f"start: {rule}"), tokenizer, len(tokenizer), 0)
    assert text == 'a "b\n[CALL] <call>{'


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"not": {"type": "string"}}, r'Unimplemented keys: \["not"\]'),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"type": "string", "format": "regex"}, "Unknown format: regex"),
        ({"$ref": "https://example.com/a.json"}, "example.com"),
        ({"$ref": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum"),
        ({"type": "object", "properties": [1]}, "properties must be an object"),
        ({"enum": ["a" * 200_000]}, "letters; at most 120,000"),
        ({"type": "integer", "multipleOf": 999999937}, "fuel"),
    ],
)
def test_what_cannot_be_followed_is_named(schema, words):
    tokenizer = tokenizers.load(POCKET / "pocket_gpt2", "gpt2")
    with pytest.raises(GrammarError, match=words):
        Grammar(tokenizer, ends_of(tokenizer), f"start: %json {json.dumps(schema)}")


@pytest.mark.parametrize("rule", ['"中"', '" "? "中"', '" "? %json {"$ref": "#"}'])
def test_a_grammar_that_no_token_can_begin_is_refused(rule):
    tokenizer = tokenizers.load(POCKET / "pocket_t5", "t5")
    with pytest.raises(GrammarError, match="no token that can follow"):
        Grammar(tokenizer, [1], f"start: {rule}")


def test_a_tokenizer_of_words_is_refused():
    tokenizer = tokenizers.load(POCKET / "pocket_bert", "bert")
    with pytest.raises(GrammarError, match=r"cannot follow a grammar \(.*WordPiece"):
        Grammar(tokenizer, [1], 'start: "a"')


def test_without_the_package_the_answer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    tokenizer = tokenizers.load(POCKET / "pocket_gpt2", "gpt2")
    with pytest.raises(Exception, match=r"pip install 'ptrun\[structured\]'"):
        Grammar(tokenizer, [0], 'start: "a"')
