"""Metrics of written texts against references: overlap, exact match, numbers, perplexity.

ROUGE is that of the package rouge-score, BLEU and chrF those of sacrebleu, `math` compares formulas
and numbers as math-verify reads them; `signatures` says with which settings. Exact match and F1 are
SQuAD's (`ptrun.metrics`).
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from itertools import chain, zip_longest
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Literal

import regex

from ptrun.errors import UserError
from ptrun.metrics import READ, UNSPACED, best, exact_match, lowered, token_f1
from ptrun.types import Prediction

TextMetric = Literal[
    "f1", "exact_match", "rouge1", "rouge2", "rougeL", "bleu", "chrf", "number", "marked", "math"
]
AnswersBy = Literal[
    "auto", "english", "words", "characters",
    "13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "flores101", "flores200", "spBLEU-1K",
]  # fmt: skip
"""How texts are divided into tokens: by a rule, or by a tokenizer of sacrebleu.

`english` is as rouge-score and SQuAD do, `words` are of any letters, without stems, `characters`
divides scripts without spaces. `auto` chooses by the letters of all references of a part.
"""
_EXTRAS = {"math_verify": "reasoning"}  # of packages; that of others is `text`
_LOSSES = ("loss", "answer_loss")
_RARE = 0.02  # of the letters: foreign names in a text
_BLEU_WORDS = 4
_WORD = regex.compile(r"[\p{L}\p{N}][\p{L}\p{N}\p{M}]*")
_References = Sequence[Sequence[str]]
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_MARKS = (
    "The answer is: ", "The answer is ", "The final answer is: ", "The final answer is ", "#### ",
)  # fmt: skip


def tokens_of(references: _References, answers_by: AnswersBy = "auto") -> tuple[str, str]:
    """Return the rule that divides the texts of a part, and sacrebleu's tokenizer for its BLEU."""
    if answers_by not in ("auto", *READ):
        _bleu(answers_by)  # refuses what is not installed
        return answers_by, answers_by
    texts = (unicodedata.normalize("NFC", text) for several in references for text in several)
    letters = Counter(filter(str.isalpha, chain.from_iterable(texts)))
    foreign = sum(count for letter, count in letters.items() if not letter.isascii())
    unspaced = sum(count for letter, count in letters.items() if UNSPACED.match(letter))
    han = sum(count for letter, count in letters.items() if regex.match(r"\p{Han}", letter))
    rare = _RARE * letters.total()
    rule = "characters" if unspaced > rare else "words" if foreign > rare else "english"
    rule = rule if answers_by == "auto" else answers_by
    # `char` divides the words of other scripts too, `zh` Chinese characters alone
    by_char = 2 * unspaced > letters.total() and unspaced - han > _RARE * unspaced
    return rule, "13a" if rule != "characters" else "char" if by_char else "zh"


def text_scores(
    metrics: Sequence[TextMetric],
    predictions: Sequence[Prediction],
    references: _References,
    answers_by: AnswersBy = "auto",
) -> dict[str, float]:
    """Return metrics, 0-100, with the loss and perplexity a token and the share without an end.

    Predictions without a text have the last alone. A loss is in nats, over the tokens of answers;
    with `readout=distillation` it is the divergence from the teacher, which is `kl` too.
    """
    scores: dict[str, float] = {}
    if all(prediction.value is not None for prediction in predictions):
        tokens = check_references(metrics, references, answers_by)
        pairs = zip(predictions, references, strict=True)
        references = [[p.reference] if p.reference is not None else [*golds] for p, golds in pairs]
        texts = [str(prediction.value) for prediction in predictions]
        scores = {name: _score(name, texts, references, tokens) for name in metrics}
        if any("unfinished" in p.figures for p in predictions):
            scores["unfinished"] = 100 * fmean(p.figures["unfinished"] for p in predictions)
    if count := sum(p.figures.get("tokens", 0) for p in predictions):
        names = [name for name in _LOSSES if all(name in p.figures for p in predictions)]
        means = {name: sum(p.figures[name] for p in predictions) / count for name in names}
        answers = means.get("answer_loss", means.get("loss"))
        if "loss" in means:
            scores["loss"] = means["loss"]
        if answers is not None:
            scores["perplexity"] = math.exp(min(answers, 700.0))
        if len(means) == len(_LOSSES):
            scores["kl"] = means["loss"]
    return scores


def check_references(
    metrics: Sequence[str], references: _References, answers_by: AnswersBy = "auto"
) -> tuple[str, str]:
    """Return how texts are divided; refuse what is not installed, and references without BLEU."""
    if answers_by != "auto" and not any(re.match("f1|exact|rouge|bleu", m) for m in metrics):
        read = ", ".join(metrics)
        raise UserError(f"task.answers_by={answers_by}: {read} compares no tokens; leave it out.")
    tokens = tokens_of(references, answers_by)
    for name in metrics:
        match = _matcher(name, tokens)
        sizes = (len(match.tokenizer(text).split()) for several in references for text in several)
        if name == "bleu" and max(sizes) < _BLEU_WORDS:
            raise UserError(
                f"task.metric=bleu: no reference has {_BLEU_WORDS} words (tokens of {tokens[1]}), "
                "so BLEU is 0 for all texts. Type task.metric=chrf."
            )
    return tokens


def signatures(
    metrics: Sequence[str], references: _References, answers_by: AnswersBy = "auto"
) -> dict[str, str]:
    """Return the settings and versions of metrics of texts, and how they divide a text."""
    tokens = check_references(metrics, references, answers_by)
    rule = tokens[0] if tokens[0] in READ else _bleu(tokens[0]).tokenizer_signature
    stemmed = f"{rule}, stemmed" if rule == "english" else rule
    settings = {}
    for name in metrics:
        if name.startswith("rouge"):
            settings[name] = f"rouge-score {version('rouge-score')}, {stemmed}, NFC"
        elif name in ("f1", "exact_match"):
            settings[name] = f"SQuAD, {rule}, NFC"
        elif name in ("bleu", "chrf"):
            metric, ones = _matcher(name, tokens), [["a"] * len(texts) for texts in references]
            metric.corpus_score(["a"] * len(ones), [*zip_longest(*ones)])  # it counts references
            settings[name] = str(metric.get_signature())
        elif name == "math":
            settings[name] = f"math-verify {version('math-verify')}"
    return settings


def last_number(text: str) -> float | None:
    """Return the number that answers a question in words, or None.

    It is what follows the last "The answer is" or "####", else the last number of the text.
    """
    for mark in _MARKS:
        if mark in text:
            text = text.rpartition(mark)[2].split("\n")[0]
            break
    numbers = _NUMBER.findall(text)
    if not numbers:
        return None
    above, _, below = numbers[-1].replace(",", "").partition("/")
    return float(above) / float(below) if below and float(below) else float(above)


def marked_answer(text: str) -> float | str | None:
    """Return what follows the last "The answer is" or "####", as PEFT's comparison reads it.

    It ends with its line. It is a number where it is one or a fraction, else a text, so `1,000` is
    a text; None without a mark.
    """
    text = text.strip().rstrip(".!?")
    for mark in _MARKS:
        if mark in text:
            answer = text.rpartition(mark)[2].strip().split("\n")[0].strip(" .!?$%")
            above, slash, below = answer.partition("/")
            with suppress(ArithmeticError):
                return float(Decimal(above) / Decimal(below if slash else 1))
            return answer
    return None


def _same_number(text: str, reference: str) -> bool:
    answer, gold = last_number(text), last_number(reference)
    return answer is not None and gold is not None and math.isclose(answer, gold, rel_tol=1e-6)


def _score(
    name: str, texts: Sequence[str], references: _References, tokens: tuple[str, str]
) -> float:
    """Return a metric of a corpus, or the mean of the best over the references of each text."""
    match = _matcher(name, tokens)
    if name in ("bleu", "chrf"):  # a text with fewer references has empty ones
        columns = [[*column] for column in zip_longest(*references)]
        return float(match.corpus_score(list(texts), columns).score)
    pairs = zip(texts, references, strict=True)
    return 100 * fmean(best(match, text, list(several)) for text, several in pairs)


def _matcher(name: str, tokens: tuple[str, str]) -> Any:
    """Return what compares a text with a reference, from 0 to 1; of BLEU and chrF the metric."""
    rule, bleu = tokens
    if name == "bleu":
        return _bleu(bleu)
    if name == "chrf":
        return _package("sacrebleu.metrics").CHRF()
    if name == "math":  # the last formula or number
        package = _package("math_verify")
        return lambda text, gold: bool(package.verify(package.parse(gold), package.parse(text)))
    if name == "number":
        return _same_number
    if name == "marked":
        return lambda text, gold: marked_answer(text) == marked_answer(gold) is not None
    if name == "exact_match":
        return partial(exact_match, read=READ.get(rule, READ["characters"]))
    if name == "f1":
        return partial(token_f1, read=READ.get(rule, lambda text: " ".join(_words(rule, text))))
    words = SimpleNamespace(tokenize=partial(_words, rule))
    scorer = _package("rouge_score.rouge_scorer").RougeScorer([name], tokenizer=words)
    return lambda text, gold: scorer.score(gold, text)[name].fmeasure


def _words(rule: str, text: str) -> list[str]:
    """Return the tokens that ROUGE compares: those with a letter or a digit, if there are any."""
    text = lowered(text)
    if rule not in READ:
        tokens = [token for token in _bleu(rule).tokenizer(text).split() if _WORD.search(token)]
    elif rule != "english":
        tokens = _WORD.findall(UNSPACED.sub(r" \g<0> ", text) if rule == "characters" else text)
    else:
        stemmed = _package("rouge_score.tokenizers").DefaultTokenizer(use_stemmer=True).tokenize
        words = [text] if text.isascii() else _WORD.findall(text)
        tokens = [
            token for word in words for token in (stemmed(word) if word.isascii() else [word])
        ]
    return tokens or ([] if text.isascii() else text.split())  # emoji alone


@cache
def _bleu(tokenizer: str) -> Any:
    """Return BLEU with a tokenizer of sacrebleu, whose data may have to be fetched."""
    try:
        return _package("sacrebleu.metrics").BLEU(tokenize=tokenizer)
    except (ImportError, OSError, RuntimeError) as error:
        raise UserError(
            f"task.answers_by={tokenizer}: sacrebleu lacks its package or data. Type pip install "
            "'sacrebleu[ja,ko]' sentencepiece; flores needs a network once, to fill ~/.sacrebleu."
        ) from error


def _package(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"task.metrics: {module.partition('.')[0].replace('_', '-')} is not installed. Type "
            f"pip install 'ptrun[{_EXTRAS.get(module, 'text')}]', or task.metrics=[f1,exact_match]."
        ) from error
