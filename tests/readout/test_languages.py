"""Languages of mBART, NLLB, M2M100 and PLBart: rows, losses and written texts are transformers'."""

import io
import json
from types import SimpleNamespace

import pytest
import sentencepiece
import torch
import transformers
from transformers import (
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PLBartTokenizer,
)

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.tokenizers import digest
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.lora import LoRA
from ptrun.readout.languages import answer_frame, tokenizer_of
from ptrun.runs.plan import plan
from ptrun.task.own import Own
from tests.backbone import types
from tests.exporting.runs import compared, shipped
from tests.readings import reading
from tests.readout.test_writing import made, texts
from tests.small_runs import conll03, engine
from tests.tiers import tiered

SENTENCES = ["the cat sat", "the dog ran home", "a cat ran", "a dog sat here", "the cat is here"]
ANSWERS = ["un chat", "le chien ici", "un chien", "le chat la", "chat ici"]
MARKS = ["<s>", "<pad>", "</s>", "<unk>"]
CODES = {"nllb": ["eng_Latn", "ron_Latn"], "m2m_100": ["en", "ro"], "plbart": ["en_XX", "java"]}
SHOWN = {  # what the encoder reads, and what the decoder does before an answer
    "mbart": ("TEXT </s> en_XX", "ro_RO"),
    "mbart50": ("en_XX TEXT </s>", "</s> ro_RO"),
    "nllb": ("eng_Latn TEXT </s>", "</s> ron_Latn"),
    "m2m_100": ("__en__ TEXT </s>", "</s> __ro__"),
    "plbart": ("TEXT </s> __en_XX__", "__java__"),
}
KINDS = {"nllb": "m2m_100", "mbart50": "mbart"}
CELLS = [*zip(SHOWN, ("prompt_tuning", "ptuning_v2", "lora") * 2, strict=False)]
SIZES = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
SIZES |= {"forced_eos_token_id": None, "scale_embedding": False}


def pieces(folder):
    """Write a model of sentencepiece; return its file and its pieces."""
    written = io.BytesIO()
    options = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
    lines = iter([*SENTENCES, *ANSWERS] * 4)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=written, **options
    )
    file = folder / "sentencepiece.bpe.model"
    file.write_bytes(written.getvalue())
    own = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return str(file), [own.id_to_piece(i) for i in range(3, len(own))]


def tokenizer(kind, folder):
    """Write a tokenizer with languages; return the number of its tokens."""
    file, words = pieces(folder)
    codes = CODES.get(kind, ["en_XX", "ro_RO"])
    scored = [(word, 0.0) for word in MARKS] + [(word, -len(word) / 9) for word in words]
    if kind in ("mbart", "mbart50"):
        library = MBartTokenizer if kind == "mbart" else MBart50Tokenizer
        vocab = [*scored, *((code, 0.0) for code in codes), ("<mask>", 0.0)]
        own, count = library(vocab=vocab), len(vocab)
    elif kind == "nllb":
        letters = sorted({letter for word in words for letter in word})
        vocab = {word: i for i, word in enumerate([*MARKS, *letters, "▁a", "▁t"])}
        own = NllbTokenizer(
            vocab=vocab, merges=[("▁", "a"), ("▁", "t")], extra_special_tokens=codes
        )
        count = len(own)
    elif kind == "plbart":
        own = PLBartTokenizer(file)
        count = own.vocab_size
    else:
        vocab = {word: i for i, word in enumerate([*MARKS, *words])}
        (folder / "vocab.json").write_text(json.dumps(vocab))
        own = M2M100Tokenizer(str(folder / "vocab.json"), file)
        count = len(vocab) + len(own.lang_code_to_id)
    own.save_pretrained(folder)
    if (folder / "tokenizer.json").is_file():
        (folder / "sentencepiece.bpe.model").unlink()
    return count


@pytest.fixture(scope="module")
def backbone_of(tmp_path_factory):
    backbones = {}

    def backbone(kind):
        if kind not in backbones:
            folder = tmp_path_factory.mktemp(kind)
            sizes = {**SIZES, "vocab_size": tokenizer(kind, folder)}
            torch.manual_seed(0)
            config = types.config_of(KINDS.get(kind, kind), **sizes)
            model = transformers.AutoModelForSeq2SeqLM.from_config(config).float()
            for parameter in model.parameters():
                parameter.data.add_(torch.randn_like(parameter) * 0.3)
            model.save_pretrained(folder)
            backbones[kind] = PretrainedBackbone(name=kind, path=str(folder), dtype="fp32")
            backbones[kind].load()
        return backbones[kind]

    return backbone


def task_of(kind, folder, languages=None, **keys):
    source, target = languages or CODES.get(kind, ["en_XX", "ro_RO"])
    file = folder / "pairs.jsonl"
    pairs = zip(SENTENCES, ANSWERS, ("one", "two", "one", "two", "one"), strict=True)
    rows = [{"en": text, "ro": answer, "label": label} for text, answer, label in pairs]
    file.write_text("\n".join(map(json.dumps, rows)))
    keys = keys or {"answer": "ro"}
    own = {"source_language": source, "target_language": target}
    return Own(None, train=str(file), text="en", **own, **keys)


@pytest.mark.parametrize("kind", SHOWN)
def test_rows_losses_and_texts_are_those_of_transformers(kind, backbone_of, tmp_path):
    backbone, task = backbone_of(kind), task_of(kind, tmp_path)
    method = made("manual_prompt", backbone, task, max_new_tokens=24)
    stock = transformers.AutoModelForSeq2SeqLM.from_pretrained(backbone.folder).float().eval()
    library = transformers.AutoTokenizer.from_pretrained(backbone.folder)
    library.src_lang, library.tgt_lang = task.source_language, task.target_language
    source, begin = SHOWN[kind]
    examples = task.load("train")
    for example, features in zip(examples, method.encode(examples), strict=True):
        (row,), text = features.rows, example.fields["en"]
        own = library(text, text_target=example.target[0], return_tensors="pt")
        assert row.ids == own["input_ids"][0].tolist()
        assert features.targets == own["labels"][0].tolist()
        words = " ".join(library.tokenize(text))
        shown = " ".join(library.convert_ids_to_tokens(row.ids))
        assert shown == source.replace("TEXT", words)
        (prompt,) = method.readout.prompt(features).rows
        assert library.convert_ids_to_tokens(prompt.decoder) == begin.split()
        batch = engine(backbone)._collate([features])
        with torch.no_grad():
            loss = method.loss(backbone.forward(method.inputs(batch)), batch)
            wanted = stock(**own).loss
        torch.testing.assert_close(loss / len(features.targets), wanted, rtol=1e-5, atol=1e-5)
    token = library.convert_tokens_to_ids(begin.split())
    forced = {"decoder_start_token_id": token[0]}
    forced |= {"forced_bos_token_id": token[1]} if len(token) > 1 else {}
    written = []
    for example in examples:
        own = library(example.fields["en"], return_tensors="pt")
        options = {"max_new_tokens": 23 + len(token), "do_sample": False, **forced}
        (ids,) = stock.generate(**own, **options).tolist()
        written.append(library.decode(ids[len(token) :], skip_special_tokens=True).strip())
    assert texts(method, examples) == written and any(written)


@pytest.mark.parametrize(("kind", "name"), CELLS)
def test_methods_write_in_a_language_alone_as_beside_another(kind, name, backbone_of, tmp_path):
    backbone, task = backbone_of(kind), task_of(kind, tmp_path)
    other = task_of(kind, tmp_path, (task.target_language, task.source_language))
    methods = [made(name, backbone, own, max_new_tokens=12) for own in (task, other)]
    examples = task.load("train")
    alone = [texts(method, examples) for method in methods]
    rows = [method.encode(examples) for method in methods]
    together = engine(backbone).predict(methods, rows)
    assert [[one.value for one in own] for own in together] == alone
    assert rows[0][0].rows[0] != rows[1][0].rows[0]


@pytest.mark.parametrize("kind", tiered(SHOWN, {"mbart", "nllb"}.__contains__))
@pytest.mark.parametrize(
    "keys", [{"readout": "head"}, {"readout": "verbalizer", "sentinel": False}]
)
def test_a_label_is_read_after_the_language_and_exported(kind, keys, backbone_of, tmp_path):
    backbone = backbone_of(kind)
    task = task_of(kind, tmp_path, label="label", pattern="{~en} {mask}")
    split, words = backbone.tokenizer().tokenize, [*"at", *" ".join(SENTENCES).split()]
    one, two = [word for word in words if len(split(word)) == 1][:2]
    task.pvps["own"]["words"] = {"one": [one], "two": [two]}
    own = reading(**keys)
    method = LoRA(backbone, task, own, rank=2, alpha=8)
    begin, _ = answer_frame(backbone, task)
    for features in method.encode(task.load("train")):
        (row,) = features.rows
        assert row.decoder == begin and row.reads == [len(begin) - 1]
    _, gap = compared(method, tmp_path / "peft", task.load("train"))
    assert gap.equal


ASKS = r"task.source_language and task.target_language. Type en_XX"
REFUSED = {
    "none": ("mbart", (None, None), f"source_language=null: .*=mbart0 reads .*{ASKS}"),
    "one": ("nllb", ("eng_Latn", None), "target_language=null: .*Type eng_Latn, ron_Latn"),
    "unknown": ("mbart50", ("en_XX", "ro"), r"target_language=ro: .*Type ro_RO, en_XX\.$"),
    "letters": ("m2m_100", ("EN", "ro"), "source_language=EN: .* and 80 more"),
    "no row": ("mbart", ("en_XX", "de_DE"), "target_language=de_DE: "),
    "T5": ("pocket_t5", ("en", None), "source_language=en: .*pocket_t5 names no languages. Leave"),
    "GPT-2": ("pocket_gpt2", (None, "ro"), "target_language=ro: .* names no languages"),
}


@pytest.mark.parametrize(("kind", "languages", "told"), REFUSED.values(), ids=REFUSED)
def test_other_languages_are_refused_by_name(kind, languages, told, backbone_of, tmp_path):
    backbone = shipped(kind) if kind.startswith("pocket") else backbone_of(kind)
    for keys in ({"answer": "ro"}, {"label": "label"}):
        task = task_of(kind, tmp_path, languages, **keys)
        with pytest.raises(UserError, match=f"(?s){told}"):
            tokenizer_of(backbone, task)
    with pytest.raises(UserError, match=f"(?s){told}"):
        made("manual_prompt", backbone, task_of(kind, tmp_path, languages)).encode(
            task.load("train")
        )


def test_a_tokenizer_that_tells_no_words_labels_none(backbone_of, data_dir):
    task = conll03(data_dir)
    task.source_language, task.target_language = CODES["m2m_100"]
    with pytest.raises(UserError, match=r"does not tell which word .* with a tokenizer.json"):
        LoRA(backbone_of("m2m_100"), task).encode(task.load("train"))


def test_a_conversation_has_no_languages(tmp_path):
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"messages": turns}))
    own = {"messages": "messages", "target_language": "ro"}
    task = Own(None, train=str(tmp_path / "chat.jsonl"), **own)
    with pytest.raises(UserError, match=r"target_language=ro: .* names no languages"):
        made("lora", shipped("pocket_gpt2"), task).encode(task.load("train"))


@pytest.mark.parametrize("kind", ["mbart", "m2m_100", "nllb-moe"])
def test_a_tokenizer_without_languages_is_refused(kind):
    plain = PretrainedBackbone(name="many", hub="a/b", config=types.config_of(kind).to_dict())
    plain.languages = {}
    task = SimpleNamespace(source_language=None, target_language=None)
    with pytest.raises(UserError, match="backbone=many names no languages"):
        tokenizer_of(plain, task)


def test_a_decoder_that_is_not_told_its_language_is_refused(backbone_of, tmp_path):
    backbone = backbone_of("nllb")
    file = backbone.folder / "tokenizer_config.json"
    usual = file.read_text()
    try:
        file.write_text(json.dumps({**json.loads(usual), "legacy_behaviour": True}))
        old = PretrainedBackbone(name="old", path=str(backbone.folder), dtype="fp32")
        with pytest.raises(UserError, match="Set legacy_behaviour to false"):
            answer_frame(old, task_of("nllb", tmp_path))
    finally:
        file.write_text(usual)


def test_typed_languages_are_in_the_id(backbone_of, tmp_path):
    task_of("mbart", tmp_path)
    common = [f"backbone.path={backbone_of('mbart').folder}", "method=lora", "task=csv"]
    common += [f"task.train={tmp_path}/pairs.jsonl", "task.text=en", "task.answer=ro"]
    codes = (("en_XX", "ro_RO"), ("ro_RO", "en_XX"), ("en_XX", "en_XX"))
    ids = {
        plan(
            compose_run([*common, f"task.source_language={a}", f"task.target_language={b}"])
        ).run_id
        for a, b in codes
    }
    assert len(ids) == 3
    null = ["task.source_language=null", "task.target_language=null"]
    assert plan(compose_run(common)).run_id == plan(compose_run([*common, *null])).run_id


@pytest.mark.parametrize("kind", ["m2m_100", "plbart"])
def test_pieces_of_sentencepiece_are_in_the_digest(kind, backbone_of, tmp_path):
    folder = backbone_of(kind).folder
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    pieces_file = tmp_path / "sentencepiece.bpe.model"
    before = digest(tmp_path)
    pieces_file.write_bytes(pieces_file.read_bytes() + b" ")
    changed = digest(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")  # which is read instead
    read = digest(tmp_path)
    pieces_file.unlink()
    assert before != changed and digest(tmp_path) == read
