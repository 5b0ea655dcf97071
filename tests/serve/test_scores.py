"""Prompts as token ids, and the log-probabilities of a prompt's tokens."""

import pytest

from ptrun.backbone.pretrained import PretrainedBackbone
from tests.predicting.test_together import rows_of
from tests.serve.test_serving import asked


@pytest.mark.parametrize("name", ["lora", "cartridge"])
def test_token_ids_are_read_as_their_text(server, runs, name):
    texts = [row["facts"] for row in rows_of(runs[name])[:3]]
    tokenizer = PretrainedBackbone(name="pocket_gpt2", shipped="pocket_gpt2").tokenizer()
    ids = [tokenizer(text)["input_ids"] for text in texts]
    body = {"model": runs[name].id, "max_tokens": 12}
    wanted = asked(server, "completions", **body, prompt=texts).json()
    for prompt in (ids, [ids[0], *texts[1:]]):
        found = asked(server, "completions", **body, prompt=prompt).json()
        assert found["choices"] == wanted["choices"] and found["usage"] == wanted["usage"]
    one = asked(server, "completions", **body, prompt=ids[0]).json()
    assert one["choices"] == wanted["choices"][:1]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([2800], "token id 2800; {id} has those from 0 to 2799"),
        ([[5], [3, -1]], "token id -1; {id}"),
        ([10**30], "from 0 to 2799"),
        ([[5], []], "prompt[1] is []; expected"),
        ([[5, "a"]], "prompt[0][1] is 'a'; expected a whole number"),
    ],
)
def test_token_ids_that_no_token_has_are_refused(server, runs, prompt, said):
    found = asked(server, "completions", model=runs["lora"].id, prompt=prompt)
    assert found.status_code == 400
    assert said.format(id=runs["lora"].id) in found.json()["error"]["message"]
