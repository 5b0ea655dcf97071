"""The rows that heads read, spelled out for the vocabularies of BERT and RoBERTa.

They are the input formats of P-tuning v2, as in its released code. RoBERTa's words are GPT-2's, so
its tokenizer is made of that vocabulary and RoBERTa's special tokens.
"""

import functools
import json

import pytest
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ptrun.backbone import tokenizers
from ptrun.config.build import build
from tests.composing import task_node
from tests.readings import readout_for

pytestmark = pytest.mark.shared
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}


def roberta(folder, *, words):
    made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.add_special_tokens([AddedToken(name, special=True) for name in ("<s>", "</s>")])
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=words)
    end, start = (("</s>", made.token_to_id("</s>")), ("<s>", made.token_to_id("<s>")))
    made.post_processor = processors.RobertaProcessing(end, start, add_prefix_space=words)
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=names, **SPECIAL)


@functools.cache
def real(root, kind, words):
    if kind == "roberta":
        return roberta(root / "gpt2", words=words)
    return tokenizers.load(root / "bert_cased", "bert", words=words)


@pytest.fixture
def backbone(tiny, shared):
    """Return a tiny backbone that reads with a real vocabulary."""
    root = shared / "models" / "tokenizers"
    if not (root / "bert_cased").is_dir() or not (root / "gpt2").is_dir():
        pytest.skip("shared data: no real vocabularies")

    def make(kind):
        made = tiny(kind)
        made._tokenizers = {(words, None): real(root, kind, words) for words in (False, True)}
        return made

    return make


@pytest.fixture
def head(tmp_path, backbone):
    """Return the features of one row of a task, as its head reads them, and the tokenizer."""

    def encode(kind, name, row, room=512, **changes):
        config = {**task_node(name), **changes}
        folder = tmp_path / config["source"].get("folder", name)
        folder.mkdir(parents=True, exist_ok=True)
        for split in ("train", "validation", "test"):
            (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
        task, read = build("task", config, str(tmp_path)), backbone(kind)
        readout = readout_for(read, task, {}, soft=False)
        return readout.encode(task.load("train"), room)[0], read

    return encode


PASSAGE = "Rain falls in Oslo."
WIC = {"sentence1": "They lead.", "sentence2": "Lead is heavy.", "word": "lead", "label": 0}
ASKED = "Does lead have the same meaning in both sentences"
WSC = {"text": "The lamp fell because it was loose.", "span1_index": 0, "span2_index": 4}
WSC |= {"span1_text": "The lamp", "span2_text": "it", "label": 1}
COPA = {"premise": "The lamp went out.", "choice1": "Wind blew.", "choice2": "Fish swam."}
RECORD = {"passage": "Ann met Bob.\n@highlight\nBob sold a boat.", "answers": ["Ann"]}
RECORD |= {"query": "@placeholder bought it.", "entities": ["Ann", "Bob"]}
CAUSE, SO = "The lamp went out. because", "The lamp went out. so"
RAIN = {"premise": PASSAGE, "hypothesis": "It rains.", "label": 0}
READ = "Ann met Bob.\n- Bob sold a boat."
CAUSED, EFFECT = ({**COPA, "question": own, "label": 0} for own in ("cause", "effect"))
MULTIRC = {"paragraph": PASSAGE, "question": "What falls?", "answer": "Rain", "label": 1}
MARKED = "The lamp fell because *it* was loose."
FORMATS = {  # a task: its row, changes of the task, and the texts of each row of tokens
    "boolq": (
        {"question": "does it rain", "passage": PASSAGE, "label": 1},
        {},
        [("does it rain", PASSAGE)],
    ),
    "cb": (RAIN, {}, [(PASSAGE, "It rains.")]),
    "rte": (RAIN, {}, [(PASSAGE, "It rains.")]),
    "multirc": (MULTIRC, {}, [(PASSAGE, "What falls? Rain")]),
    "wic template 1": (WIC, {}, [("lead: They lead.", "lead: Lead is heavy.")]),
    "wic template 0": (WIC, {"fields": ["asked"]}, [(f"They lead. Lead is heavy. {ASKED}?",)]),
    "wsc template 0": (WSC, {}, [("it: The lamp fell because it was loose.", "The lamp")]),
    "wsc template 1": (WSC, {"fields": ["marked", "span1_text"]}, [(MARKED, "The lamp")]),
    "copa cause": (CAUSED, {}, [(CAUSE, "Wind blew."), (CAUSE, "Fish swam.")]),
    "copa effect": (EFFECT, {}, [(SO, "Wind blew."), (SO, "Fish swam.")]),
    "record": (RECORD, {}, [(READ, "Ann bought it."), (READ, "Bob bought it.")]),
    "sst2": ({"sentence": "A fine film.", "label": "positive"}, {}, [("A fine film.",)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_row_is_the_papers(head, kind, name):
    """The released code gives the tokenizer one text, or two."""
    row, changes, texts = FORMATS[name]
    features, read = head(kind, name.split()[0], row, **changes)
    for own, pair in zip(features.rows, texts, strict=True):
        wanted = read.tokenizer()(*pair)
        assert (own.ids, own.types) == (wanted["input_ids"], wanted.get("token_type_ids"))
        assert own.reads == [0]
    assert name != "record" or features.targets == [1, 0], "binary examples of their own"


SRL = {"tokens": ["Unbelievably", "Ann", "sold", "boats", "."], "predicate_index": 2}
SRL |= {"srl_tags": ["O", "B-A0", "B-V", "B-A1", "O"]}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_roles_are_read_at_first_sub_tokens_and_the_predicate_behind_a_border(head, kind):
    features, read = head(kind, "conll05_wsj", SRL)
    tokenizer = read.tokenizer(words=True)
    (own,) = features.rows
    words = [*SRL["tokens"], tokenizer.sep_token, "sold"]
    assert own.ids == tokenizer(words, is_split_into_words=True)["input_ids"]
    assert len(features.targets) == len(own.reads) == len(SRL["tokens"])
    first = [tokenizer.convert_ids_to_tokens(own.ids[i]).lstrip("Ġ") for i in own.reads]
    assert all(w.startswith(t) for t, w in zip(first, SRL["tokens"], strict=True))
    assert max(own.reads) < own.ids.index(tokenizer.sep_token_id)
    assert own.reads[1] - own.reads[0] > 1  # the first word has several tokens, read once


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_names_are_read_once_a_word_unless_it_is_cut_off(head, kind):
    row = {"tokens": ["Oslo", "unbelievably", "met", "Ann"], "ner_tags": ["B-LOC", "O", "O", "O"]}
    whole, _ = head(kind, "conll03", row)
    assert len(whole.targets) == 4
    short, _ = head(kind, "conll03", row, room=len(whole.rows[0].ids) - 1)
    assert short.targets == whole.targets[:3] and len(short.rows[0].ids) < len(whole.rows[0].ids)
