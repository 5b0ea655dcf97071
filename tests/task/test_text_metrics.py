"""Texts of any script have the tokens of the packages, and equal texts agree."""

import json
import random
import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.task.extraction import Answer, Extraction
from ptrun.task.own import Own
from ptrun.task.text_metrics import check_references, signatures, text_scores, tokens_of
from ptrun.types import Example, Prediction
from tests.tiers import package

package("rouge_score")
package("sacrebleu")
from rouge_score.rouge_scorer import RougeScorer  # noqa: E402
from sacrebleu.metrics import BLEU, CHRF  # noqa: E402

ROUGE = ["rouge1", "rouge2", "rougeL"]
TEXTS = {
    "Chinese": "今天天气很好、我们去公园散步。A股上涨了3点",
    "Japanese": "今日はいい天気ですね。コーヒーを飲みました",
    "Thai": "วันนี้อากาศดีมาก เราไปเดินเล่นที่สวน",
    "Lao": "ມື້ນີ້ອາກາດດີຫຼາຍ ພວກເຮົາໄປສວນ",
    "Khmer": "ថ្ងៃនេះអាកាសធាតុល្អណាស់ យើងទៅសួន",
    "Burmese": "ဒီနေ့ရာသီဥတုကောင်းတယ် ပန်းခြံသွားမယ်",
    "Tibetan": "དེ་རིང་གནམ་གཤིས་ཡག་པོ་འདུག",
    "Hindi": "आज मौसम बहुत अच्छा है। हम बाग़ में घूमने जाते हैं",
    "Arabic": "الطقس جميل جدًّا اليوم، نذهب إلى الحديقة",
    "Persian": "امروز هوا خوب است و ما می‌رویم",
    "Hebrew": "מזג האוויר יפה היום ואנחנו הולכים לגן",
    "Russian": "сегодня очень хорошая погода, мы идём в парк",
    "Greek": "ο καιρός είναι πολύ καλός σήμερα",  # noqa: RUF001
    "Korean": "오늘 날씨가 아주 좋네요 공원에 갑시다",
    "Spanish": "Cristóbal está aquí y mañana irá a Málaga",
    "French": "L'été a été très chaud à Sète, n'est-ce pas ?",
    "Vietnamese": "Hôm nay trời đẹp, chúng tôi đi dạo",
}
BY_CHARACTERS = [*TEXTS][:7]
WHOLE = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
BLEU_BY = {"Chinese": "zh", **dict.fromkeys(BY_CHARACTERS[1:], "char")}
ENGLISH = "the quick brown foxes don't jump over an old dog's kennel, said U.S. officials in 1999"


def scored(metrics, text, reference, **keys):
    return text_scores(metrics, [Prediction("a", text)], [[reference]], **keys)


def cases(script, count=200):
    """Return pairs of texts of random words and characters of a script."""
    draw, words = random.Random(script), TEXTS.get(script, ENGLISH).split(" ")
    if script in BY_CHARACTERS:
        words = list(TEXTS[script])
    space = "" if script in BY_CHARACTERS else " "
    return [
        tuple(space.join(draw.choices(words, k=draw.randint(4, 14))) for _ in range(2))
        for _ in range(count)
    ]


def divided(text):
    """Return the tokens of a text, by Unicode's categories and names alone."""
    words, goes_on = [], False
    for char in unicodedata.normalize("NFC", text.lower()):
        kind = unicodedata.category(char)
        if kind[0] in "LN":
            is_whole = kind[0] == "L" and unicodedata.name(char, "").startswith(WHOLE)
            if goes_on and not is_whole:
                words[-1] += char
            else:
                words.append(char)
            goes_on, takes_marks = not is_whole, True
        elif kind[0] == "M" and words and takes_marks:
            words[-1] += char
        elif kind != "Cf":
            goes_on = takes_marks = False
    return words


@pytest.mark.parametrize("script", TEXTS)
def test_scores_are_those_of_the_packages_with_that_tokenizer(script):
    pairs = cases(script)
    scorer = RougeScorer(ROUGE, tokenizer=SimpleNamespace(tokenize=divided))
    tokenizer = BLEU_BY.get(script, "13a")
    references = [[gold] for _, gold in pairs]
    assert tokens_of(references)[1] == tokenizer
    scores = text_scores(
        [*ROUGE, "bleu", "chrf"], [Prediction("a", t) for t, _ in pairs], references
    )
    for name in ROUGE:
        values = [scorer.score(gold, text)[name].fmeasure for text, gold in pairs]
        assert scores[name] == pytest.approx(100 * sum(values) / len(values), rel=1e-12)
    texts, golds = map(list, zip(*pairs, strict=True))
    assert scores["bleu"] == BLEU(tokenize=tokenizer).corpus_score(texts, [golds]).score
    assert scores["chrf"] == CHRF().corpus_score(texts, [golds]).score
    assert f"tok:{tokenizer}|" in signatures(["bleu"], references)["bleu"]


@pytest.mark.parametrize("script", TEXTS)
def test_equal_texts_score_100_composed_or_not(script):
    text, rule = TEXTS[script], "characters" if script in BY_CHARACTERS else "words"
    assert tokens_of([[text]])[0] == rule
    for form in ("NFC", "NFD"):
        scores = scored([*ROUGE, "f1", "exact_match"], unicodedata.normalize(form, text), text)
        assert scores == pytest.approx(dict.fromkeys(scores, 100)), form
    assert scored(["bleu", "chrf"], text, text) == pytest.approx({"bleu": 100, "chrf": 100})
    kept = signatures(["rougeL", "f1"], [[text]])
    assert kept["f1"] == f"SQuAD, {rule}, NFC" and kept["rougeL"].endswith(f", {rule}, NFC")


def test_english_is_as_the_packages_have_it():
    pairs, plain = cases("English"), RougeScorer(ROUGE, use_stemmer=True)
    references = [[gold] for _, gold in pairs]
    scores = text_scores([*ROUGE, "bleu"], [Prediction("a", t) for t, _ in pairs], references)
    for name in ROUGE:
        values = [plain.score(gold, text)[name].fmeasure for text, gold in pairs]
        assert scores[name] == pytest.approx(100 * sum(values) / len(values), rel=1e-15)
    texts, golds = map(list, zip(*pairs, strict=True))
    assert scores["bleu"] == BLEU().corpus_score(texts, [golds]).score
    assert scored(["f1", "exact_match"], "The cat's!", "a cats") == {"f1": 100, "exact_match": 100}
    assert signatures(["rougeL"], references)["rougeL"].endswith(", english, stemmed, NFC")
    signs = "it’s — “fine”… 3 €, ❤️ and ok_then 👍"  # noqa: RUF001
    assert scored(["rougeL"], ENGLISH, signs)["rougeL"] == pytest.approx(
        100 * plain.score(signs, ENGLISH)["rougeL"].fmeasure
    )
    assert scored(["rouge1"], "👍", "👍") == {"rouge1": 100} != scored(["rouge1"], "👎", "👍")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(st.characters(categories=("L", "M", "N", "Zs", "P")), min_size=1, max_size=30))
def test_a_text_equals_itself_and_no_letter_is_dropped(text):
    bare = any(char.isalpha() for char in text)
    more = text + " Ж" + text
    for rule in ("words", "characters"):
        scores = scored(["rouge1", "f1", "exact_match"], text, text, answers_by=rule)
        assert scores["exact_match"] == 100
        assert not bare or scores["rouge1"] == scores["f1"] == pytest.approx(100)
        scores = scored(["rouge1", "f1", "exact_match"], more, text, answers_by=rule)
        assert max(scores.values()) < 100


MIXED = {
    "a name in English": (
        "we met Zoë there, and the man of the old house was very glad of it",
        "english",
    ),
    "a name in Russian": ("мы видели там Ann, и хозяин дома был этому рад", "words"),
    "Latin words in Chinese": ("我用 PyTorch 和 transformers 训练模型 on two GPUs", "characters"),
}


@pytest.mark.parametrize("mixture", MIXED)
def test_the_letters_of_all_references_decide(mixture):
    text, rule = MIXED[mixture]
    assert tokens_of([[text], [text]])[0] == rule
    english = [[ENGLISH]] * 20
    assert tokens_of([*english, ["她"], ["Привет"]])[0] == "english"


@pytest.mark.parametrize(
    ("text", "gold"),
    [("Cristéval est aqué", "Cristóbal está aquí"), ("a café", "a caf"), ("维生素A", "维生素"),
     ("हिन्दी", "हन्द"), ("va a casa è", "va casa è"), ("it was Zoe", "it was Zoë")],
)  # fmt: skip
def test_texts_that_differ_in_a_letter_differ(text, gold):
    assert max(scored([*ROUGE, "exact_match"], text, gold).values()) < 100
    english = " and more plain words of the English language" * 5
    assert max(scored(ROUGE, text + english, gold + english).values()) < 100


def test_characters_are_compared_without_punctuation_and_spaces():
    scores = scored(["f1", "exact_match", "rouge1"], "今天 天气、很好。", "今天天气很好」")
    assert scores == pytest.approx({"f1": 100, "exact_match": 100, "rouge1": 100})
    assert scored(["f1"], "天氣很好", "天氣好")["f1"] == pytest.approx(600 / 7)
    assert scored(["exact_match"], "क्या है।", "क्या है")["exact_match"] == 100


def test_the_rule_is_settable():
    by_words = scored(["f1", "rouge1"], "今天天气", "今天天气很好", answers_by="words")
    assert by_words == {"f1": 0, "rouge1": 0}
    pair = ("los gatos negros están aquí hoy", "los gatos negros no están aquí")
    named = scored(["bleu", "rougeL"], *pair, answers_by="char")
    assert named["bleu"] == BLEU(tokenize="char").corpus_score([pair[0]], [[pair[1]]]).score
    letters = SimpleNamespace(tokenize=lambda text: list(text.replace(" ", "")))
    value = RougeScorer(["rougeL"], tokenizer=letters).score(pair[1], pair[0])["rougeL"].fmeasure
    assert named["rougeL"] == pytest.approx(100 * value)
    kept = signatures(["f1", "rougeL"], [[pair[1]]], "char")
    assert kept["f1"] == "SQuAD, char, NFC" and ", char, NFC" in kept["rougeL"]
    english = scored(["rouge1"], "el gato corre á", "el gatos corres á", answers_by="english")
    assert english["rouge1"] == pytest.approx(100)  # its stems


@pytest.mark.parametrize("name", ["ja-mecab", "flores200"])
def test_a_tokenizer_without_its_data_is_refused(name, monkeypatch, tmp_path):
    from sacrebleu.tokenizers import tokenizer_ja_mecab, tokenizer_spm

    def no_network(*_):
        raise OSError("no network")

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", no_network)
    with pytest.raises(UserError, match=rf"answers_by={name}.*sacrebleu\[ja,ko\].*~/.sacrebleu"):
        check_references(["rougeL"], [["今日はいい天気"]], name)


def test_bleu_of_short_references_names_chrf():
    for texts in (["three short words"], ["Cristóbal está aquí"], ["天气好"]):
        with pytest.raises(UserError, match=r"no reference has 4 words.*task\.metric=chrf"):
            check_references(["bleu"], [texts])
    check_references(["bleu"], [["two words"], ["今天很好啊"]])
    assert scored(["bleu"], "天气很好", "天气很好")["bleu"] == pytest.approx(100)


def test_a_rule_that_nothing_reads_is_refused(tmp_path):
    with pytest.raises(UserError, match="chrf, number compares no tokens"):
        check_references(["chrf", "number"], [["a"]], "words")
    (tmp_path / "rows.csv").write_text("text,label\na,b\n")
    with pytest.raises(UserError, match=r"task\.answers_by=words is of texts to write"):
        Own(None, train=str(tmp_path / "rows.csv"), text="text", label="label", answers_by="words")


@pytest.mark.slow
def test_a_result_says_how_the_texts_of_test_and_dev_are_divided(tmp_path):
    rows = {
        "train": ["今天天气很好"] * 4,
        "dev": ["a plain text of words"] * 4,
        "test": ["天气很好"] * 4,
    }
    for part, texts in rows.items():
        lines = [
            json.dumps({"text": f"{part} {i}", "answer": text}) for i, text in enumerate(texts)
        ]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(lines))
    line = ["task=csv", *(f"task.{part}={tmp_path}/{part}.jsonl" for part in rows)]
    line += ["task.text=text", "task.answer=answer", "task.metric=bleu", "backbone=pocket_gpt2"]
    line += ["method=prompt_tuning", "train.max_steps=1", "readout.max_new_tokens=4"]
    planned = plan(compose_run([*line, f"outputs={tmp_path}/outputs"]))
    launch(planned.request)
    kept = json.loads((planned.folder / "result.json").read_text())["manifest"]["signatures"]
    assert "tok:zh|" in kept["bleu"] and "tok:13a|" in kept["dev_bleu"]
    assert kept["f1"] == "SQuAD, characters, NFC" and kept["dev_f1"] == "SQuAD, english, NFC"


def test_spans_of_a_script_without_spaces_are_scored_by_characters():
    keys = {"version": 1, "source": {"hub": "none"}, "splits": {"train": "a"}, "name": "qa"}

    def scores(text, gold, **rule):
        task, example = Extraction(None, **keys, **rule), Example("a", {}, [Answer(gold, 0)])
        return task.score([Prediction("a", text)], [example]), task.signatures([example])

    by_characters = scores("天氣很好", "天氣好")
    assert by_characters[0]["f1"] == pytest.approx(600 / 7)
    assert by_characters[1] == {"f1": "SQuAD, characters"}
    assert scores("天氣很好", "天氣好", answers_by="words") == ({"em": 0, "f1": 0}, {})
    assert scores("The Oslo.", "oslo") == ({"em": 100, "f1": 100}, {})
