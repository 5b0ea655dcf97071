"""Small tokenizers of every style, made in memory, and the real vocabularies of the papers."""

import tempfile
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ptrun.backbone import tokenizers as backbone_tokenizers
from tests.conftest import byte_tokenizer, wordpiece_tokenizer

REAL = {"bert_cased": "bert", "bert_uncased": "bert", "gpt2": "gpt2", "t5": "t5"}


def bert():
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    special |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}
    names = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=wordpiece_tokenizer(), model_input_names=names, **special
    )


def roberta():
    made = byte_tokenizer()
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=made, mask_token="<mask>", model_input_names=names, **special
    )


def gpt2():
    made = byte_tokenizer()
    made.post_processor = processors.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", model_input_names=["input_ids"]
    )


def t5():
    pieces = ["▁", "▁film", "film", "▁good", "good", "▁bad", ".", "?", "A", "▁A", "B", "▁B", "▁a"]
    return _unigram(pieces, [f"<extra_id_{i}>" for i in range(3)])


def mt5():
    """Return mT5's kind: sentinels are pieces of their own, and Chinese words have no space."""
    sentinels = [f"▁<extra_id_{i}>" for i in range(3)]
    pieces = ["▁", "▁film", "film", "▁a", "▁b", "矛盾", "中", "▁中立", "中立", "很", *sentinels]
    return _unigram(pieces)


def _unigram(pieces, special=()):
    vocab = [("<pad>", 0.0), ("<unk>", 0.0), *((piece, -2.0) for piece in pieces)]
    made = Tokenizer(models.Unigram(vocab, unk_id=1))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.add_special_tokens([AddedToken(name, special=True) for name in special])
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", model_input_names=names
    )


def cpm2():
    from ptrun.papers.cpm2_text import SPECIAL
    from ptrun.papers.tokenizers import Cpm2Tokenizer

    entries = [*SPECIAL.values(), "▃", "▂", "<s_0>", "<s_1>", "好", "差", "。", "一", "、", "电影"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"
        file.write_text("\n".join(dict.fromkeys(entries)) + "\n", encoding="utf-8")
        return Cpm2Tokenizer(str(file))


def glm(shared):
    from ptrun.papers import tokenizers as glm_tokenizer

    file = shared / "models" / "tokenizers" / "gpt2" / "tokenizer.json"
    made = Tokenizer.from_file(str(file))
    glm_tokenizer.add_special(made)
    with tempfile.TemporaryDirectory() as folder:
        glm_tokenizer.write(made, Path(folder))
        return backbone_tokenizers.load(Path(folder), "blocklm", "bpe")


def real(shared, name):
    if name == "glm":
        return glm(shared)
    folder = shared / "models" / "tokenizers" / name
    if name == "cpm2":
        from ptrun.papers.tokenizers import Cpm2Tokenizer

        return Cpm2Tokenizer(str(folder / "vocab.txt"))
    return backbone_tokenizers.load(folder, REAL[name])
