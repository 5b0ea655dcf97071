"""The special tokens around texts are those of the model, also without a tokenizer.json."""

import pytest

from ptrun.backbone import tokenizers
from ptrun.errors import UserError
from tests.hub.shapes import deberta, t5


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("words", [False, True])
def test_deberta_has_one_separator_between_texts(tmp_path, words):
    """As in its released code; the library's class puts two there, as RoBERTa's (5.23)."""
    tokenizer = tokenizers.load(write(tmp_path, deberta()), "deberta", words=words)
    pair = tokenizer("a", "b")
    tokens = [one.strip("Ġ") for one in tokenizer.convert_ids_to_tokens(pair["input_ids"])]
    assert [one for one in tokens if one] == ["[CLS]", "a", "[SEP]", "b", "[SEP]"]
    assert pair["token_type_ids"][-2:] == [1, 1] and pair["token_type_ids"][0] == 0
    single = tokenizer.convert_ids_to_tokens(tokenizer("a")["input_ids"])
    assert (single[0], single[-1]) == ("[CLS]", "[SEP]")


@pytest.mark.parametrize("absent", ["sentencepiece", "protobuf"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, absent):
    files = t5(with_json=False)
    folder = write(tmp_path, {"spiece.model": files["spiece.model"]})
    found = tokenizers.find_spec
    module = tokenizers._PACKAGES[absent]
    monkeypatch.setattr(tokenizers, "find_spec", lambda one: None if one == module else found(one))
    with pytest.raises(UserError, match=rf"needs the package {absent}\.\n.*ptrun\[sentencepiece\]"):
        tokenizers.load(folder, "t5")
    (folder / "tokenizer.json").write_bytes(t5(with_json=True)["tokenizer.json"])
    assert tokenizers.load(folder, "t5")("a film")["input_ids"]
