"""Overrides: any word is read or refused in words, and texts of any script arrive unchanged."""

from hypothesis import assume, example, given
from hypothesis import strategies as st

from ptrun.config.compose import compose_run
from ptrun.config.overriding import expanded, parsed
from tests.fuzz.strategies import TEXTS, WORDS, fewer, read_or_refused

KEYS = st.sampled_from(
    [
        *("seed", "name", "train.lr", "method.length", "task.pattern", "task", "outputs", "keep"),
        *(
            "data_dir",
            "backbone.path",
            "backbone.config.hidden_size",
            "setting.k",
            "start",
            "trial",
        ),
        *("hardware.precision", "sweep.devices", "pretraining.task.source", "hydra.run", "x"),
    ]
)
MARKS = st.sampled_from([*"=,[]{}():'\"\\~+@$&%*;!?. \t\n", "${", "???", "null", "1e9"])
VALUES = st.lists(MARKS | TEXTS | WORDS, max_size=6).map("".join)
OVERRIDES = st.tuples(st.sampled_from(["", "+", "++", "~", "@"]), KEYS, VALUES).map(
    lambda own: f"{own[0]}{own[1]}={own[2]}"
)
LETTERS = st.text(st.characters(categories=["Lu", "Ll", "Lo"]), min_size=1, max_size=8)


@given(OVERRIDES | TEXTS)
@example("seed=")
@example("seed=0,0")
@example("seed=range(3)")
@example("=")
@example("task.pattern=é\\'")
@example("seed=${oc.env:HOME}")
def test_any_override_is_read_or_refused(override):
    read_or_refused(parsed, override)
    read_or_refused(expanded, [override])


@given(st.lists(LETTERS, min_size=1, max_size=3).map(" ".join))
@example("été")
@example("null 猫")
def test_words_of_any_script_arrive_unchanged(text):
    assume(text.lower() not in ("null", "true", "false", "nan", "inf"))
    assert parsed(f"task.label={text}") == text
    assert parsed(f"task.text=[{text},b]") == [text, "b"]
    ((own, _),) = expanded([f"task.label={text}"])
    assert parsed(*own) == text


@given(st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False))
def test_plain_values_arrive_with_their_type(value):
    read = parsed(f"method.length={str(value).lower()}")
    assert read == value and type(read) is type(value)


@fewer(20)
@given(st.lists(OVERRIDES, min_size=1, max_size=2))
@example(["name=a/../../b"])
@example(["name=\udcff"])
@example(["seed=99999999999999999999"])
@example(["train.betas=[[1]]"])
@example(["trial={a:1}"])
def test_any_line_is_composed_or_refused(overrides):
    read_or_refused(compose_run, overrides)
