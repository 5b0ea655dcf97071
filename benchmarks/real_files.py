"""The files that rows of `real_rows.py` read, cut from the validation part of SQuAD 1.1."""

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cartridges import article, written
from running import lines

PARTS = {"train": 2000, "validation": 300, "test": 500}  # questions, each part of own articles
WRITTEN = {"train": 500, "validation": 60, "test": 200}  # those whose answer is written
WORDS = 120  # the most of a paragraph and its question, where the answer is written


def write_files(data: Path, tokenizer: Path, folder: Path) -> None:
    """Write squad/, answers/ and document/ into a folder that does not have them."""
    if (folder / "document/train.jsonl").is_file():  # the last one
        return
    from transformers import AutoTokenizer

    for name in ("squad", "answers", "document"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    by_article = defaultdict(list)
    for row in lines(data, "squad/validation"):
        by_article[row["title"]].append(row)
    articles = list(by_article.values())
    random.Random(0).shuffle(articles)
    for part, count in PARTS.items():
        rows: list[dict[str, Any]] = []
        while len(rows) < count:
            rows += articles.pop()
        _write(folder / "squad" / f"{part}.jsonl", rows[:count])
        short = [row for row in rows if len(f"{row['context']} {row['question']}".split()) <= WORDS]
        asked = (
            {
                "asked": f"{row['context']}\nQuestion: {row['question']}\nAnswer:",
                "answer": row["answers"]["text"][0],
            }
            for row in short[: WRITTEN[part]]
        )
        _write(folder / "answers" / f"{part}.jsonl", asked)
    text, rows = article(data, AutoTokenizer.from_pretrained(tokenizer), 1000)
    written(rows, text, folder / "document", (30, 60))


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
