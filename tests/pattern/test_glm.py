"""GLM's inputs for SuperGLUE, token by token, with its real vocabulary.

The parts are those that `get_parts` of its released code (THUDM/GLM, tasks/superglue/pvp.py) would
give for the rows below; there as here each is encoded on its own.
"""

import json

import pytest

from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import read_pvps
from tests.pattern import tokenizers as make
from tests.readout.reading import task

pytestmark = pytest.mark.shared

M = None  # [MASK]
PAIR = {"premise": "He said no. Rain fell.", "hypothesis": "It rained.", "label": 1}
ROWS = {
    "boolq": {"passage": "Eagles are birds.", "question": "can birds fly", "label": 1},
    "cb": PAIR,
    "rte": PAIR,
    "copa": {"premise": "The lamp went out.", "choice1": "The wind blew.", "choice2": "I slept!"}
    | {"question": "cause", "label": 0},
    "multirc": {"paragraph": "Ann met Bob. ", "question": "Whom did Ann meet?", "answer": "Bob."}
    | {"label": 1, "idx": {"paragraph": 0, "question": 0, "answer": 0}},
    "wic": {"sentence1": "He ran a shop.", "sentence2": "Run!", "word": "run", "label": 0},
    "wsc": {"text": "The lamp fell, so it broke.", "span1_index": 0, "span2_index": 4}
    | {"span1_text": "The lamp", "span2_text": "it", "label": 1},
    "record": {"passage": "Ann met Bob.\n@highlight\nBob left.", "query": "Then @placeholder's car"}
    | {"entities": ["Ann", "Bob"], "answers": ["Bob"], "idx": {"passage": 0, "query": 0}},
}
BASED = ["Based on the following passage", " can birds fly", "?", M, ".", " Eagles are birds."]
LAMP = " The lamp went out"
COPA = ['"', "the wind blew", '" or "', "i slept", '"?', LAMP, " because", M, "."]
MULTIRC = ["Ann met Bob", ". Question:", " Whom did Ann meet", "? Is it", " Bob.", "?", M, "."]
SAME = " Does run have the same meaning in both sentences?"
ASKED = " Question: In the passage above, what does the pronoun '*it*' refer to? Answer:"
PARTS = {
    "boolq glm": ["Eagles are birds.", " Question:", " can birds fly", "? Answer:", M, "."],
    "boolq glm_4": BASED,
    "cb glm": ['"', "It rained", '" ?', M, ', "', "He said no. Rain fell.", '"'],
    "cb glm_3": ["It rained", "?", M, ".", " He said no. Rain fell."],
    "rte glm": ['"', "It rained", '" ?', M, ', "', "He said no. Rain fell.", '"'],
    "copa glm": COPA,
    "multirc glm": MULTIRC,
    "wic glm": ['"He ran a shop." / "Run!"', ' Similar sense of "run"?', M, "."],
    "wic glm_1": ["He ran a shop.", " Run!", SAME, M],
    "wsc glm": ["The lamp fell, so *it* broke.", " The pronoun '*it*' refers to", M, "."],
    "wsc glm_2": ["The lamp fell, so *it* broke.", ASKED, M, "."],
    "record glm": ["Ann met Bob.\n- Bob left.", " Then", M, "'s car"],
}


@pytest.fixture(scope="module")
def tokenizer(shared):
    if not (shared / "models" / "tokenizers" / "gpt2").is_dir():
        pytest.skip("shared data: no vocabulary gpt2")
    return make.real(shared, "glm")


def example(folder, name, **changes):
    """Return a row of a task as an example, and the task."""
    (folder / name).mkdir(exist_ok=True)
    row = json.dumps({**ROWS[name], **changes})
    for split in ("train", "validation"):
        (folder / name / f"{split}.jsonl").write_text(row + "\n")
    found = task(name, folder)
    return found, found.load("train")[0]


def spelt(tokenizer, parts):
    """Return [CLS], the parts each encoded on its own, and the end mark."""
    plain = {"add_special_tokens": False}
    own = [[50260] if part is M else tokenizer(part, **plain)["input_ids"] for part in parts]
    return [50259, *(id_ for ids in own for id_ in ids), 50256]


def written(tokenizer, of, name, *, room=512):
    """Return what is encoded of an example in a pattern."""
    pvp = read_pvps(of[0].pvps, of[0].labels)[name]
    return Encoder(tokenizer).encode(pvp.render(of[1].fields), room)


def test_every_pattern_of_glm_is_here():
    names = {f"{name} {pvp}" for name in ROWS for pvp in task(name).pvps if pvp.startswith("glm")}
    assert names == set(PARTS)


@pytest.mark.parametrize("case", PARTS)
def test_a_row_is_what_the_released_code_makes_of_it(tokenizer, tmp_path, case):
    name, pvp = case.split()
    made = written(tokenizer, example(tmp_path, name), pvp)
    assert made.ids == spelt(tokenizer, PARTS[case])
    assert [made.ids[at] for at in made.masks] == [50260] and made.cut == 0


def test_what_is_too_long_is_cut_where_the_released_code_cuts(tokenizer, tmp_path):
    """The last text of one part; of two parts the longer one, the second of equals."""
    plain = written(tokenizer, example(tmp_path, "boolq"), "glm")
    short = written(tokenizer, example(tmp_path, "boolq"), "glm", room=len(plain.ids) - 2)
    assert short.ids == spelt(tokenizer, [*PARTS["boolq glm"][:2], " can", *PARTS["boolq glm"][3:]])
    pair = example(tmp_path, "cb", premise="rain rain rain rain", hypothesis="sun sun sun")
    cut = written(tokenizer, pair, "glm", room=9 + 4)
    assert cut.ids == spelt(tokenizer, ['"', "sun sun", '" ?', M, ', "', "rain rain", '"'])
