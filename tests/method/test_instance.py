"""M(x) kept: the numbers of a pass made anew, computed once, for all members over a backbone."""

from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.method.idpg import IDPG
from ptrun.method.instance import FrozenPass, glove, text_of
from tests.small_runs import engine, fitted, member, sst2

SMALL = {"length": 3, "hidden": 8, "order": 4}
MAKES = {
    "M": partial(IDPG, **SMALL),
    "M_first": partial(IDPG, **SMALL, source="first"),
    "S": partial(IDPG, **SMALL, deep=False),
}


class Anew(IDPG):
    """Keeps nothing: M(x) is computed with every batch."""

    def unprepared(self, features, *, training):
        return ()


class Passes:
    """Counts the rows a backbone reads from ids, as M(x) is, and from embeddings."""

    def __init__(self, backbone):
        self.bare = self.prompted = 0
        forward = backbone.forward

        def counted(given):
            if given.ids is None:
                self.prompted += len(given.mask)
            else:
                self.bare += len(given.mask)
            return forward(given)

        backbone.forward = counted


def batch_of(fit, method, keys=None, order=slice(None)):
    features = method.encode(method.task.load("train"))[order]
    return fit._collate(features, None if keys is None else torch.arange(len(features)) + keys)


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_kept_or_anew_members_learn_and_answer_the_same(tiny, data_dir, make):
    found = []
    for kind in (make, partial(Anew, **make.keywords)):
        backbone = tiny()
        one = member(kind, backbone, sst2(data_dir), max_steps=8)
        fit = fitted([one])
        features = one.method.encode(one.method.task.load("test"))
        found.append((one.journal.losses(), fit.predict([one.method], [features])[0]))
        assert bool(backbone.kept) == (kind is make)
    (losses, answers), (anew, again) = found
    assert losses == pytest.approx(anew, abs=1e-5) and answers == again


def test_a_row_is_read_bare_once_by_whichever_members(tiny, data_dir):
    """Six train rows, of which five are dev; two members, one of them of another form."""
    backbone = tiny()
    makes = (MAKES["M"], MAKES["S"])
    members = [member(m, backbone, sst2(data_dir), i, max_steps=8) for i, m in enumerate(makes)]
    seen = Passes(backbone)
    fitted(members)
    assert seen.bare == len(backbone.kept) == 6
    assert seen.prompted > 2 * 8 * 3


def test_without_generator_nothing_is_read_bare(tiny, data_dir):
    backbone = tiny()
    seen = Passes(backbone)
    for own, bare in (({"generator": "none"}, 0), ({"length": 0}, 4 + 2 + 5)):  # two steps, dev
        fitted([member(partial(IDPG, **own), backbone, sst2(data_dir), max_steps=2)])
        assert seen.bare == bare and not backbone.kept


@torch.no_grad()
def test_kept_vectors_follow_their_rows_in_training_and_evaluation(tiny, data_dir):
    backbone = tiny("roberta")
    method, fit = MAKES["M"](backbone, sst2(data_dir)), engine(backbone)
    anew = method.instance(batch_of(fit, method))
    fit._prepare([method], [method.encode(method.task.load("train"))], training=True)
    kept = method.instance(batch_of(fit, method))
    torch.testing.assert_close(kept, anew, atol=1e-5, rtol=0)
    shuffled = [4, 1, 5, 0, 3, 2]
    features = method.encode(method.task.load("train"))
    other = fit._collate([features[i] for i in shuffled], torch.arange(6) + 30)
    assert torch.equal(method.instance(other), kept[shuffled])


@torch.no_grad()
def test_with_dropout_every_step_draws_its_own_and_evaluation_has_none(tiny, data_dir):
    backbone = tiny()
    method = IDPG(backbone, sst2(data_dir), **SMALL, instance_dropout=True)
    fit = engine(backbone)
    features = method.encode(method.task.load("train"))
    assert not method.unprepared(features, training=True)
    fit._prepare([method], [features])
    first, second = (method.instance(batch_of(fit, method, keys)) for keys in (1, 100))
    still = method.instance(batch_of(fit, method))
    assert not torch.allclose(first, second, atol=1e-2)
    assert not torch.allclose(first, still, atol=1e-2)
    plain = MAKES["M"](backbone, sst2(data_dir))
    assert torch.equal(still, plain.instance(batch_of(fit, plain, 1)))


def test_what_was_kept_goes_when_weights_may_have_changed(tiny, data_dir):
    backbone = tiny()
    one = member(MAKES["S"], backbone, sst2(data_dir), max_steps=1)
    fit = fitted([one])
    assert backbone.kept
    fit.place([one.method])
    assert not backbone.kept
    backbone.kept[b"row"] = torch.zeros(1)
    backbone.load()
    assert not backbone.kept


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_texts_pieces_are_joined_by_a_blank(tiny, kind):
    tokenizer = tiny(kind).tokenizer()
    ids = tokenizer("the film was bad", "not good")["input_ids"]
    assert text_of(tokenizer, ids) == "the film was bad not good"


@pytest.fixture
def words(tmp_path):
    torch.manual_seed(0)
    known = ["the", "film", "was", "good", "bad", "a", "plot", "dull", "bright"]
    lines = [f"{w} {' '.join(f'{x:.3f}' for x in torch.randn(12))}" for w in known]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "vectors.txt")


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_word_vectors_take_the_place_of_the_pass_at_every_site(tiny, data_dir, words, kind):
    backbone = tiny(kind)
    make = partial(IDPG, **SMALL, source="first", glove=words)
    one = member(make, backbone, sst2(data_dir), max_steps=4)
    seen = Passes(backbone)
    fit = fitted([one])
    assert seen.bare == 0 and seen.prompted
    batch = batch_of(fit, one.method)
    means = [
        one.method.encoder.words.mean(e.fields["sentence"]) for e in sst2(data_dir).load("train")
    ]
    torch.testing.assert_close(one.method.instance(batch), torch.stack(means))
    assert one.method.prompt.generators["0"].down.blocks().shape == (4, 12 // 4, 8 // 4)
    answers = fit.predict([one.method], [one.features])[0]
    assert fit.predict([one.method], [one.features[::-1]])[0] == answers[::-1]


def test_word_vectors_and_states_do_not_go_together(tiny, data_dir, words):
    make = partial(IDPG, tiny(), sst2(data_dir), **SMALL, glove=words)
    with pytest.raises(UserError, match=r"type method.source=first"):
        make()
    assert not isinstance(make(deep=False).encoder, FrozenPass)
    with pytest.raises(UserError, match=r"a map from 12 to 8 needs a divisor of both"):
        make(deep=False, order=8)


def test_a_run_is_named_by_what_is_in_the_file(words):
    told = IDPG.fingerprint_config({"glove": words, "length": 5})
    assert told["length"] == 5 and words not in str(told)
    assert IDPG.fingerprint_config({"glove": None}) == {"glove": None}


# Averages of word vectors, and files that hold none.


LINES = "the 1 2 -3\ndont 0.5 0 1e1\n, 9 9 9\nélan 4 4 4\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(LINES, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("the", [1, 2, -3]),
        ("The, DON'T!", [0.75, 1, 3.5]),
        ("the the\tdont", [2.5 / 3, 4 / 3, 4 / 3]),
        ("unseen (Élan) , words", [4, 4, 4]),
    ],
)
def test_a_text_is_the_mean_of_its_known_words(file, text, mean):
    assert glove(file).width == 3
    torch.testing.assert_close(glove(file).mean(text), torch.tensor(mean, dtype=torch.float))


def test_a_text_without_known_words_is_drawn_from_the_text_alone(tmp_path, file):
    first, second = glove(file).mean("no one"), glove(file).mean("nothing")
    wide = tmp_path / "wide.txt"
    wide.write_text("x" + " 0" * 5000 + "\n")
    drawn = glove(str(wide)).mean("no one")
    assert not torch.equal(first, second)
    assert drawn.mean().abs() < 0.05 and drawn.std() == pytest.approx(0.6, abs=0.03)
    torch.manual_seed(5)
    again = tmp_path / "again.txt"
    again.write_text(LINES, encoding="utf-8")
    assert torch.equal(glove(str(again)).mean("no one"), first)
    assert torch.equal(glove(str(again)).mean(""), glove(file).mean(""))


def test_a_file_is_shared_until_it_changes_and_named_by_its_content(tmp_path, file):
    before = glove(file)
    assert glove(file) is before
    other = tmp_path / "other.txt"
    other.write_text(LINES, encoding="utf-8")
    assert glove(str(other)).digest() == before.digest()
    other.write_text(LINES + "a 1 1 1\n", encoding="utf-8")
    assert glove(str(other)).digest() != before.digest()
    torch.testing.assert_close(glove(str(other)).mean("a"), torch.ones(3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word\n", "line 1 has no numbers after its word"),
        ("", "line 1 has no numbers"),
        ("a 1 2\nb 1\n", "the vector of 'b' is '1'; line 1 has 2 numbers"),
        ("a 1 2\nb 1 2 3\n", "the vector of 'b' is '1 2 3'; line 1 has 2 numbers"),
        ("400000 300\nb 1 2\n", "the vector of 'b' is '1 2'; line 1 has 1 numbers"),
        ("a 1 2\nb nan 1\n", "the vector of 'b' is 'nan 1'; line 1 has 2 numbers"),
        ("a 1 2\nb 1 2-3\n", "the vector of 'b': could not .* '2-3'"),
    ],
)
def test_files_that_are_not_vectors_are_refused(tmp_path, text, message):
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        glove(str(path)).mean("b")


@pytest.mark.parametrize("name", ["no.txt", "~no_such_user/glove.txt", "a" * 300])
def test_a_file_that_is_not_there_is_told(name):
    with pytest.raises(UserError, match=f"method.glove={name}: no such file; give a text file"):
        glove(name)
