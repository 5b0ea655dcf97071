"""PET's patterns as its code has them: parts side by side, each after a space, `|` between two."""

from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from ptrun.papers.experiment import load
from ptrun.pattern.pattern import read_pvps
from tests.readout.reading import CONF

NLI = {"premise": "He ran.", "hypothesis": "He moved!"}
COPA = {"premise": "He ran.", "options": ["It rained.", "She won."]}
WSC = {"marked": "Ann said *she* ran.", "span2_text": "she"}
MULTIRC = {"paragraph": "He ran.", "question": "Who ran?", "answer": "he"}
WIC = {"sentence1": "A run.", "sentence2": "We run.", "word": "run"}
BOOLQ = {"passage": "He ran.", "question": "did he run"}
SO, BECAUSE = ({**COPA, "question": word} for word in ("so", "because"))
ASKS = '? Is the correct answer " he "? _ .'
SHOWN = {
    "boolq": (BOOLQ, "pet_1", "He ran. . Question: did he run ? Answer: _ ."),
    "boolq-2": (BOOLQ, "pet_2", "He ran. . Based on the previous passage, did he run ? _ ."),
    "boolq-4": (BOOLQ, "pet_4", "Based on the following passage, did he run ? _ . He ran."),
    "rte": (NLI, "pet_0", '" He moved " ? | _ , " He ran. "'),
    "rte-1": (NLI, "pet_1", "He moved ? | _ , He ran."),
    "cb-2": (NLI, "pet_2", '" He moved " ? | _ . " He ran. "'),
    "cb-3": (NLI, "pet_3", "He moved ? | _ . He ran."),
    "cb-4": (NLI, "pet_4", "He ran. question: He moved! true, false or neither? answer: _"),
    "rte-4": (NLI, "pet_4", "He ran. question: He moved! True or False? answer: _"),
    "copa": (SO, "pet_0", '" it rained " or " she won "? He ran , so __ .'),
    "copa-1": (BECAUSE, "pet_1", "it rained or she won ? He ran because __ ."),
    "wsc": (WSC, "pet_0", "Ann said *she* ran. The pronoun '*she*' refers to __ ."),
    "multirc-1": (MULTIRC, "pet_1", f"He ran. . Question: Who ran? {ASKS}"),
    "multirc-3": (MULTIRC, "pet_3", "He ran. Who ran? - [ _ ] he"),
    "wic": (WIC, "pet_0", '" A run. " / " We run. " Similar sense of "run"? _ .'),
    "wic-2": (WIC, "pet_2", 'run . Sense (1) (a) " A run. " ( _ ) " We run. "'),
}


def patterns(task):
    node = OmegaConf.to_container(OmegaConf.load(CONF / "task" / f"{task}.yaml"))
    return read_pvps(node["pvps"], list(node.get("labels", ())))


@pytest.mark.parametrize(("case", "fields", "name", "text"), [(k, *v) for k, v in SHOWN.items()])
def test_a_pattern_reads_as_in_its_code(case, fields, name, text):
    line, before = "", SimpleNamespace(segment=0)
    for piece in patterns(case.partition("-")[0])[name].render(fields):
        opens = piece.segment > before.segment
        written = {"mask": "_", "masks": "__"}.get(piece.kind, piece.text)
        line += (" | " if opens else " " if piece.spaced else "") + written
        before = piece
    assert line == text


def test_the_table_searches_all_of_them():
    """PET has 6, 5, 3, 5, 4, 3 and 2 patterns for the seven tasks; `pet` is the first of two."""
    table = load("ptuning/table5")
    cells = [c for c in table.cells if c.at["method"].startswith("PET")]
    for cell in (c for c in cells if "ensemble" not in c.at["method"]):
        (names,) = table.searched(cell).values()
        task = cell.at["task"].lower()
        own = [name for name in patterns(task) if name.startswith("pet_") and name[-1].isdigit()]
        assert set(names) - {"pet"} == set(own)
        sizes = {"boolq": 6, "cb": 5, "wic": 3, "rte": 5, "multirc": 4, "wsc": 3, "copa": 2}
        assert len(names) == sizes[task] and (table.mean_over(cell) == "grid") is (
            cell.at["method"] == "PET mean over prompts"
        )
