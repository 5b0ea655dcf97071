"""The command lines of the workshop: their help, and mistakes that are explained."""

import pytest

from ptrun.errors import UserError
from workshop import adapt, random_model
from workshop.command import run
from workshop.pretrain import __main__ as pretrain

HELP = {
    adapt: ["sentinel: end the text", "rate"],
    pretrain: ["answer_length", *(name for name in pretrain.recipes() if "pocket" in name)],
    random_model: ["python -m workshop.random_model backbone=", "tokenizer:"],
}
WRONG = {
    adapt: {
        "backbone=pocket_t6": "did you mean 'pocket_t5'",
        "backbone=pocket_bert": "pocket_bert is masked; LM adaptation is for encoder-decoders",
        "rat=5": "did you mean 'rate'",
        "steps=many": "expected int, got 'many'",
    },
    pretrain: {
        "stepz=5": "did you mean 'steps'",
        "objective=guess": "expected one of 'masked', 'replaced', 'causal', 'denoising'",
        "steps=-3": "pretrain.steps is -3; use 1 or more",
        "backbone=pocket_electra corpus=/some": "needs generator=FOLDER",
        "backbone=pocket_t5 initial=a": "initial is for objective=masked or replaced, not denois",
    },
}


@pytest.mark.parametrize("command", HELP)
def test_the_help_lists_the_keys(command, capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    told = capsys.readouterr().out
    assert all(text in told for text in HELP[command])


@pytest.mark.parametrize(
    ("command", "line"), [(command, line) for command, lines in WRONG.items() for line in lines]
)
def test_a_wrong_recipe_is_explained(command, line):
    with pytest.raises(UserError) as caught:
        command.read(line.split())
    assert WRONG[command][line] in str(caught.value)


def test_mistakes_are_told_without_a_traceback(capsys):
    assert run(pretrain.main, ["steps=many"]) == 1
    assert capsys.readouterr().err == "ptrun: pretrain.steps: expected int, got 'many'.\n"
