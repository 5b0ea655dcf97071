"""Prompts as token ids, and the log-probabilities of a prompt's tokens."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

import ptrun
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.predicting.answering import ready
from ptrun.serve import reading
from ptrun.serve.answers import token_text
from tests.predicting.conftest import ROWS
from tests.predicting.test_together import rows_of
from tests.serve.conftest import serving
from tests.serve.test_serving import asked

SCORED = {
    "words": ["method=prompt_tuning", "method.length=3", "readout=verbalizer"],
    "slots": ["method=ptuning", "readout=verbalizer"],
    "texts": ["method=prompt_tuning", "method.length=3", "task=pocket_writing"],
}


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Yield the address of a server, and runs that read words."""
    out, made = tmp_path_factory.mktemp("scored"), {}
    common = ["backbone=pocket_gpt2", ROWS, "train.max_steps=3", "train.lr=0.05", f"outputs={out}"]
    for name, line in SCORED.items():
        task = [] if name == "texts" else ["task=pocket_sentiment"]
        made[name] = ptrun.run(*line, *task, *common)
    with serving(out) as (address, *_):
        yield address, made


@pytest.fixture(scope="module")
def tokenizer():
    return PretrainedBackbone(name="pocket_gpt2", shipped="pocket_gpt2").tokenizer()


def stock_scores(run, ids):
    """Return the log-probabilities of a stock model with the run's vectors in front, `[T, V]`."""
    finished = ready(str(run.folder), [])
    stock = GPT2LMHeadModel.from_pretrained(finished.backbone.folder, dtype=torch.float32)
    vectors = finished.tensors["prompt.table"]
    words = stock.get_input_embeddings()(torch.tensor(ids))
    with torch.no_grad():
        logits = stock(inputs_embeds=torch.cat([vectors, words])[None]).logits[0]
    return logits[len(vectors) - 1 :].log_softmax(-1)


@pytest.mark.parametrize("name", ["lora", "cartridge"])
def test_token_ids_are_read_as_their_text(server, runs, tokenizer, name):
    texts = [row["facts"] for row in rows_of(runs[name])[:3]]
    ids = [tokenizer(text)["input_ids"] for text in texts]
    body = {"model": runs[name].id, "max_tokens": 12}
    wanted = asked(server, "completions", **body, prompt=texts).json()
    for prompt in (ids, [ids[0], *texts[1:]]):
        found = asked(server, "completions", **body, prompt=prompt).json()
        assert found["choices"] == wanted["choices"] and found["usage"] == wanted["usage"]
    one = asked(server, "completions", **body, prompt=ids[0]).json()
    assert one["choices"] == wanted["choices"][:1]


def test_a_token_before_every_text_is_the_clients_with_echo_and_the_runs_without():
    words = Tokenizer(WordLevel({"<s>": 0, "a": 1, "b": 2}, unk_token="a"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>")
    backbone = SimpleNamespace(tokenizer=lambda: tokenizer, embedding_rows=3)
    task = SimpleNamespace(pvps={"plain": {}}, answer="text", optional=(), reads=["text"])
    loaded = SimpleNamespace(id="run", run=SimpleNamespace(backbone=backbone, task=task))
    assert reading._ids(loaded, "a b") == [1, 2] and reading._ids(loaded, "<s>a") == [0, 1]
    for ids in ([1, 2], [0, 1, 2]):
        assert reading._fields(loaded, {"prompt": ids}) == {"text": "a b"}
    with pytest.raises(UserError, match="prompt: ' ' has no token"):
        reading._ids(loaded, " ")


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([2800], "prompt: 2800 is no token id of {id}, which has those from 0 to 2799"),
        ([[5], [3, -1]], "-1 is no token id of {id}"),
        ([10**30], "from 0 to 2799"),
        ([[5], []], "prompt[1] is []; expected"),
        ([[5, "a"]], "prompt[0][1] is 'a'; expected a whole number"),
    ],
)
def test_token_ids_that_no_token_has_are_refused(server, runs, prompt, said):
    found = asked(server, "completions", model=runs["lora"].id, prompt=prompt)
    assert found.status_code == 400
    error = found.json()["error"]
    assert said.format(id=runs["lora"].id) in error["message"] and error["param"].startswith(
        "prompt"
    )


@pytest.mark.parametrize("name", ["words", "texts"])
@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_prompt_is_scored_as_a_stock_model_with_the_vectors_in_front_does(
    scored, tokenizer, name, most
):
    address, runs = scored
    prompts = ["The film is great", " A dull one, 😀.", "x"]
    ids = [tokenizer(text)["input_ids"] for text in prompts]
    body = {"model": runs[name].id, "max_tokens": most, "echo": True, "logprobs": 2}
    found = asked(address, "completions", **body, prompt=prompts, temperature=0).json()
    again = asked(address, "completions", **body, prompt=ids, temperature=0).json()
    scores = [[one["logprobs"] for one in answer["choices"]] for answer in (found, again)]
    for own, other in zip(*scores, strict=True):  # the text of ids may begin with a space
        assert own == {**other, "text_offset": own["text_offset"]}
    assert found["usage"]["prompt_tokens"] == sum(map(len, ids))
    for choice, prompt, tokens in zip(found["choices"], prompts, ids, strict=True):
        assert choice["text"].startswith(prompt)
        own = choice["logprobs"]
        every = [token_text(tokenizer, token) for token in tokens]
        assert own["tokens"][: len(tokens)] == every and own["text_offset"][0] == 0
        assert own["token_logprobs"][0] is None and own["top_logprobs"][0] is None
        shares = stock_scores(runs[name], tokens)
        for place in range(1, len(tokens)):
            share = shares[place]
            logprob, top = own["token_logprobs"][place], own["top_logprobs"][place]
            assert logprob == pytest.approx(float(share[tokens[place]]), abs=1e-4)
            assert max(top.values()) == pytest.approx(float(share.max()), abs=1e-4)
            assert (logprob == max(top.values())) == (int(share.argmax()) == tokens[place])
        assert len(own["tokens"]) <= len(tokens) + most
        if not most:
            assert choice["text"] == prompt and choice["finish_reason"] == "length"


def test_what_has_no_scores_is_refused(scored, server, runs):
    address, made = scored
    body = {"prompt": "The film", "echo": True, "max_tokens": 1}
    for place, run, said in (
        (address, made["slots"], "vectors inside a pattern"),
        (server, runs["labels"], "learned a head"),
    ):
        found = asked(place, "completions", model=run.id, **body)
        assert found.status_code == 400 and said in found.json()["error"]["message"]
    for more, key in (
        ({"stream": True}, "echo"),
        ({"echo": False, "max_tokens": 0}, "max_tokens"),
    ):
        found = asked(address, "completions", model=made["texts"].id, **(body | more))
        assert found.status_code == 400 and found.json()["error"]["param"] == key
    long = {**body, "prompt": [5] * 254, "model": made["texts"].id}
    found = asked(address, "completions", **long)
    assert found.json()["error"]["code"] == "context_length_exceeded"
    whole = asked(address, "completions", **long | {"prompt": [5] * 253, "max_tokens": 0})
    assert whole.status_code == 200 and whole.json()["usage"]["completion_tokens"] == 0


def test_echo_without_scores_begins_with_the_prompt(scored):
    address, runs = scored
    body = {"model": runs["texts"].id, "prompt": "The old boat", "max_tokens": 4}
    found = asked(address, "completions", **body, echo=True).json()["choices"][0]
    assert found["text"].startswith("The old boat") and found["logprobs"] is None
    assert len(found["text"]) > len("The old boat")


def test_other_tops_in_a_batch_change_nothing(scored):
    address, runs = scored
    body = {"model": runs["texts"].id, "prompt": "The old boat", "echo": True, "max_tokens": 1}
    with ThreadPoolExecutor(6) as pool:
        waits = [pool.submit(asked, address, "completions", **body, logprobs=n) for n in range(6)]
        found = [wait.result().json()["choices"][0]["logprobs"] for wait in waits]
    for count, one in enumerate(found):
        assert {len(top) for top in one["top_logprobs"][1:]} <= {count, count + 1}
        assert one["token_logprobs"][1:] == pytest.approx(found[0]["token_logprobs"][1:], abs=1e-5)


def test_what_lm_eval_sends_for_a_multiple_choice_gives_the_labels_of_predict(scored, tokenizer):
    address, runs = scored
    rows = rows_of(runs["words"])
    wanted = runs["words"].predict(rows, probabilities=True)
    lines = [(f"{row['sentence']} It was", f" {word}") for row in rows for word in ("bad", "good")]
    own = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    whole = ["".join(line) for line in lines]
    starts = [len(tokenizer(context)["input_ids"]) for context, _ in lines]
    found = []
    for prompt in ([tokenizer(text)["input_ids"] for text in whole], whole):
        answer = asked(address, "completions", model=runs["words"].id, prompt=prompt, **own).json()
        scores = [choice["logprobs"] for choice in answer["choices"]]
        found.append([sum(s["token_logprobs"][n:-1]) for s, n in zip(scores, starts, strict=True)])
        for score, start, text in zip(scores, starts, whole, strict=True):
            assert len(score["tokens"]) == len(tokenizer(text)["input_ids"]) + 1
            for place in range(start, len(score["tokens"])):
                best = max(score["top_logprobs"][place].values())
                assert score["token_logprobs"][place] <= best
            assert score["token_logprobs"][-1] == best  # the likeliest token is written
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    pairs = torch.tensor(found[0]).view(-1, 2)
    for share, other in zip(pairs.softmax(-1).tolist(), wanted, strict=True):
        assert share == pytest.approx([*other["probabilities"].values()], abs=1.1e-4)
        assert ["negative", "positive"][share[1] > share[0]] == other["prediction"]
