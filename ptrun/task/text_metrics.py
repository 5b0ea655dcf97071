"""Metrics of written texts against references: overlap, exact match, last number, perplexity.

ROUGE is that of the package rouge-score, BLEU and chrF those of sacrebleu, `math` compares formulas
and numbers as math-verify reads them; `signatures` says with which settings. Exact match and F1 are
SQuAD's (`ptrun.metrics`).
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import zip_longest
from statistics import fmean
from typing import Any, Literal

from ptrun.errors import UserError, warn_once
from ptrun.metrics import best, exact_match, token_f1
from ptrun.types import Prediction

TextMetric = Literal[
    "f1", "exact_match", "rouge1", "rouge2", "rougeL", "bleu", "chrf", "number", "math"
]
_EXTRAS = {"math_verify": "reasoning"}  # of packages; that of others is `text`
_LOSSES = ("loss", "answer_loss")
_RARE = 0.02  # of the letters: foreign names in a text
_BLEU_WORDS = 4
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
_References = Sequence[Sequence[str]]
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_MARKS = (
    "The answer is: ", "The answer is ", "The final answer is: ", "The final answer is ", "#### ",
)  # fmt: skip


def text_scores(
    metrics: Sequence[TextMetric], predictions: Sequence[Prediction], references: _References
) -> dict[str, float]:
    """Return metrics, 0-100, with the loss and perplexity a token and the share without an end.

    Predictions without a text have the last alone. A loss is in nats, over the tokens of answers;
    with `readout=distillation` it is the divergence from the teacher, which is `kl` too.
    """
    pairs = zip(predictions, references, strict=True)
    references = [[p.reference] if p.reference is not None else [*golds] for p, golds in pairs]
    check_references(metrics, references)
    scores: dict[str, float] = {}
    if all(prediction.value is not None for prediction in predictions):
        texts = [str(prediction.value) for prediction in predictions]
        scores = {name: _score(name, texts, references) for name in metrics}
        if any("unfinished" in p.figures for p in predictions):
            scores["unfinished"] = 100 * fmean(p.figures["unfinished"] for p in predictions)
    if tokens := sum(p.figures.get("tokens", 0) for p in predictions):
        names = [name for name in _LOSSES if all(name in p.figures for p in predictions)]
        means = {name: sum(p.figures[name] for p in predictions) / tokens for name in names}
        answers = means.get("answer_loss", means.get("loss"))
        if "loss" in means:
            scores["loss"] = means["loss"]
        if answers is not None:
            scores["perplexity"] = math.exp(min(answers, 700.0))
        if len(means) == len(_LOSSES):
            scores["kl"] = means["loss"]
    return scores


def check_references(metrics: Sequence[str], references: Iterable[Sequence[str]]) -> None:
    """Refuse a metric whose words are not those of the references; warn if that is rare."""
    chosen = {name.rstrip("L12"): name for name in metrics if name.startswith(("rouge", "bleu"))}
    if not chosen:
        return
    texts = [text for several in references for text in several]
    letters = Counter(letter for text in texts for letter in text if letter.isalnum())
    for kind, name in chosen.items():
        if kind == "rouge":  # it reads a-z, 0-9
            unseen = {letter for letter in letters if not letter.isascii()}
        else:
            unseen = {n for n in letters if unicodedata.name(n, "").startswith(_UNSPACED)}
        count = sum(letters[letter] for letter in unseen)
        if count > _RARE * letters.total():
            raise UserError(
                f"task.metric={name}: {kind.upper()} does not divide these texts into words. Type "
                "task.metric=chrf."
            )
        if unseen:
            cut = sum(not unseen.isdisjoint(text) for text in texts)
            warn_once(
                f"{kind.upper()} cuts words with other letters, in {cut} of {len(texts)} references"
            )
    if "bleu" in metrics and texts and max(len(text.split()) for text in texts) < _BLEU_WORDS:
        raise UserError(
            f"task.metric=bleu: no reference has {_BLEU_WORDS} words, so BLEU is 0 for all texts. "
            "Type task.metric=chrf."
        )


def signatures(metrics: Sequence[str]) -> dict[str, str]:
    """Return the settings and versions of the metrics that a package computes."""
    settings = {}
    for name in metrics:
        if name.startswith("rouge"):
            settings[name] = f"rouge-score {version('rouge-score')}, stemmed"
        elif name in ("bleu", "chrf"):
            metric = _sacrebleu(name)
            metric.corpus_score(["a"], [["a"]])  # it counts the references
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


def _same_number(text: str, reference: str) -> bool:
    answer, gold = last_number(text), last_number(reference)
    return answer is not None and gold is not None and math.isclose(answer, gold, rel_tol=1e-6)


def _score(name: str, texts: Sequence[str], references: _References) -> float:
    """Return a metric of a corpus, or the mean of the best over the references of each text."""
    if name in ("bleu", "chrf"):  # a text with fewer references has empty ones
        columns = [[*column] for column in zip_longest(*references)]
        return float(_sacrebleu(name).corpus_score(list(texts), columns).score)
    match, pairs = _matcher(name), zip(texts, references, strict=True)
    return 100 * fmean(best(match, text, list(several)) for text, several in pairs)


def _matcher(name: str) -> Any:
    """Return what compares a text with a reference, from 0 to 1."""
    if name == "math":  # the last formula or number
        package = _package("math_verify")
        return lambda text, gold: bool(package.verify(package.parse(gold), package.parse(text)))
    if name.startswith("rouge"):  # the F-measure
        scorer = _package("rouge_score.rouge_scorer").RougeScorer([name], use_stemmer=True)
        return lambda text, gold: scorer.score(gold, text)[name].fmeasure
    return {"f1": token_f1, "exact_match": exact_match, "number": _same_number}[name]


def _sacrebleu(name: str) -> Any:
    metrics = _package("sacrebleu.metrics")
    return {"bleu": metrics.BLEU, "chrf": metrics.CHRF}[name]()


def _package(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            f"task.metrics: {module.partition('.')[0].replace('_', '-')} is not installed. Type "
            f"pip install 'ptrun[{_EXTRAS.get(module, 'text')}]', or task.metrics=[f1,exact_match]."
        ) from error
