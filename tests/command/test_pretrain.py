"""`ptrun pretrain` without --random says where training is; the rest is in tests/pretrain."""

import pytest

from ptrun.command.pretrain import main
from ptrun.errors import UserError


def test_what_trains_a_model_is_named():
    typed = ["backbone=pocket_t5", "corpus=DIR", "out=mine"]
    with pytest.raises(UserError) as caught:
        main(typed)
    (line,) = str(caught.value).splitlines()
    assert line.endswith(" ".join(["type in a checkout: python -m workshop.pretrain", *typed]))


def test_a_word_that_is_no_override_is_refused():
    with pytest.raises(UserError, match="expected KEY=VALUE, got 'fast'"):
        main(["fast"])


def test_the_help_lists_the_keys(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert "dtype: dtype of the weights" in told and "python -m workshop.pretrain" in told
