"""`ptrun compare` writes the same page twice, but for the figures of the machine."""

import csv
import io

import pytest

from ptrun.command.compare import main
from ptrun.errors import UserError

LINE = ["method=manual_prompt,prompt_tuning,fine_tuning", "task=pocket_sentiment"]
LINE += ["backbone=pocket_gpt2", "readout=verbalizer", "train.max_steps=2", "train.batch_size=4"]
LINE += ["+task.source.rows={train: 16, validation: 8, test: 8}", "trials=2", "seeds=2"]


@pytest.mark.slow
def test_the_page_is_the_same_twice(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("A man walks in the park.\n\nIt is a good day.\n")
    pages, tables = [], []
    for name in ("a", "b"):
        main([*LINE, f"outputs={tmp_path / name}", f"forgetting={tmp_path / 'texts.txt'}"])
        page = (tmp_path / name / "runs" / "comparison.html").read_text()
        pages.append(page.partition("<h2>Time and memory")[0])
        text = (tmp_path / name / "runs" / "comparison.csv").read_text()
        tables.append({row["method"]: row for row in csv.DictReader(io.StringIO(text))})
    assert pages[0] == pages[1] and "<svg" in pages[0]
    manual, tuned = tables[0]["manual_prompt"], tables[0]["fine_tuning"]
    assert float(manual["forgetting"]) == 0.0 != float(tuned["forgetting"])
    assert (manual["trials"], tuned["trials"], manual["bytes"]) == ("1", "2", "0")
    assert manual["scores"].count(",") == 1 and "1 *" not in capsys.readouterr().err
    assert float(tables[0]["prompt_tuning"]["tokens_added"]) > float(manual["tokens_added"]) > 0


@pytest.mark.parametrize("typed", ["trials=0", "seeds=many"])
def test_a_wrong_count_is_refused(typed):
    with pytest.raises(UserError, match=f"{typed}: give a number, 1 or more"):
        main(["method=lora", typed])
