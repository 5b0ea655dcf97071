"""Wrong command lines: at most three lines, the value, what is allowed, exit 1, nothing left."""

import shlex

import pytest

from tests.tiers import tiered

WRONG = {
    "predct x": "ptrun predct: unknown; did you mean 'predict'?",
    "method=ptuning_v3": "method=ptuning_v3 … did you mean 'ptuning_v2'?",
    "metod=ptuning_v2": "metod … did you mean 'method'?",
    "method.lenght=3": "method.lenght … did you mean 'length'?",
    "train.lrr=1": "train.lrr … did you mean 'lr'?",
    "method.length=abc": "method.length … expected int or null, got 'abc'",
    "seed=abc": "seed: expected int, got 'abc'",
    "train.schedule=cos": "'cos' … linear_to_warmup, cosine, constant, exponential",
    "readout.pooler=max": "'max' … 'frozen', 'trainable', 'classifier'",
    "train.lr=-1": "train.lr is -1.0; use more than 0",
    "train.lr=1e38": "train.lr is 1e+38; use … at most 1e+30",
    "seed=-1": "seed=-1: expected a number from 0 to 4294967295",
    "method._target_=subprocess.run": "was not imported … ptrun trust",
    f"outputs={'x' * 300}": "File name too long … shorter name",
    "task=sst2 data_dir=/nowhere": "data_dir=/nowhere: no such folder",
    "task=conll03": "conll03 … data_dir=DIR … does not hold it",
    "backbone.path=/nowhere": "backbone.path=/nowhere … model.safetensors",
    "backbone=bert_large_cased": "bert-large-cased … backbone.path=FOLDER",
    "method.length=300": "300 … 256 positions … method.length=248 or less",
    "'method.layers=[2,9]'": "[2, 9] … first <= last <= 4",
    "'method.stacks=[encodr]' backbone=pocket_t5": (
        "method.stacks … one of 'encoder', 'decoder', 'cross' … encodr"
    ),
    "hardware=gpu": "hardware.device=cuda … hardware=cpu",
    "task=csv 'task.pattern={text} is {mask}'": (
        "task.pattern={text} is {mask}: not readable … quotes … {text} is {mask}\"'"
    ),
    "task=csv 'task.train=tickets (1).csv'": "parentheses … 'task.train=\"tickets (1).csv\"'",
    "seed": "seed",
    "seed=1,2": "seed=1,2: several values … ptrun -m seed=1,2 for a sweep.",
    "task.skip=a,b": "ptrun -m … 'task.skip=[a,b]' for a list",
    "train.lr=null": "train.lr=null: expected float",
    "train.betas=1": "train.betas=1: expected a list, such as train.betas=[A,B]",
    "list metod": "metod … did you mean 'method'?",
    "hydra.run.dir=elsewhere": "hydra.run.dir: Hydra's own … outputs=DIR and name=NAME",
    "name=../x": "name=../x … name=my_runs",
    "allow_bin=1": "allow_bin=1: expected true or false",
    "backbone=cpm2": "cpm2 is not on the hub … ptrun import cpm2 SHARDS",
    "task=csv task.train=rows.csv task.text=text task.label=label protocol=paper": "rows.csv",
    "backbone=pocket_gpt2 task=pocket_sentiment readout.pooler=frozen": (
        "readout.pooler is frozen … pocket_gpt2 (causal) … readout.pooler=trainable"
    ),
    "import cpm2 /nowhere --out x": "/nowhere … mp_rank_00",
    "import cpm2 /nowhere": "--out",
    "start=run:lost": "start=run:lost … prompt.safetensors … outputs",
    "method.qqq=3": "method.qqq: unknown. Allowed: length",
    "-m method.lenght=1,2": "method.lenght … did you mean 'length'?",
}
"""Command lines, and the words that must be printed."""
FIRST = ["method=ptuning_v3", "method.lenght=3", "task=conll03", "hydra.run.dir=elsewhere"]


@pytest.mark.parametrize("line", tiered(WRONG, lambda line: line in FIRST))
def test_a_wrong_command_is_explained(ptrun, line):
    check(ptrun, ptrun(*shlex.split(line)), WRONG[line].split(" … "))


SPOILT = {
    "broken line": (
        *("train", '{"sentence": "x", "label": 1}\n{"sentence": \n'),
        *("train.jsonl:2", "not JSON"),
    ),
    "foreign label": (
        *("train", '{"sentence": "x", "label": "meh"}\n'),
        *("train.jsonl:1", "'meh'", "negative (0), positive (1)"),
    ),
    "empty split": ("validation", "", "validation.jsonl", "the split is empty"),
    "lost split": ("test", None, "test.jsonl[.gz]: no such file"),
}


@pytest.mark.parametrize("name", SPOILT)
def test_wrong_data_are_named_with_file_and_line(ptrun, name):
    split, text, *told = SPOILT[name]
    file = ptrun.data_dir / "sst2" / f"{split}.jsonl"
    file.unlink() if text is None else file.write_text(text)
    check(ptrun, ptrun(*ptrun.small()), told)


def test_an_impossible_pair_is_refused_before_anything_is_loaded(ptrun):
    done = ptrun("task=pocket_facts", "readout=head", "backbone=bert_large_cased")
    told = ["readout=head cannot answer task=pocket_facts", "type readout=verbalizer"]
    check(ptrun, done, told)


@pytest.mark.slow
def test_words_the_backbone_does_not_know_leave_no_folder(ptrun):
    own = "{pattern: '{~sentence} {mask}', words: {negative: [zz qx], positive: [qq]}}"
    words = ["readout=verbalizer", "readout.pattern=own", f"+task.pvps.own={own}"]
    done = ptrun(*ptrun.small("method=prompt_tuning", *words))
    told = "ptrun: pattern own: label 'negative': 'zz qx' is 4 tokens"
    assert done.returncode == 1 and told in done.stderr, done.stderr
    assert "Or another readout.pattern: " in done.stderr
    assert not list(ptrun.folder.glob("outputs/runs/*"))


def check(ptrun, done, told):
    assert done.returncode == 1, done.stderr + done.stdout
    lines = done.stderr.strip().splitlines()
    assert 1 <= len(lines) <= 3 and "Traceback" not in done.stderr, done.stderr
    for words in told:
        assert words in done.stderr, done.stderr
    assert not [made for made in ptrun.folder.glob("outputs/runs/*") if made.is_dir()]
