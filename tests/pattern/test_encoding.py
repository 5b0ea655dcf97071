"""Rows are laid out as the tokenizer does it, with slots in place and only field text cut."""

import random

import pytest

from ptrun.errors import UserError
from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import parse
from ptrun.pattern.rendering import Piece
from ptrun.pattern.spelling import Spelling, mask_ids
from tests.pattern import tokenizers as make


def row(tokenizer, text, fields, room=100, masks=1, words=()):
    encoded = Encoder(tokenizer).encode(parse(text).render(fields, words), room, masks)
    return encoded, tokenizer.convert_ids_to_tokens(encoded.ids)


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "t5", "cpm2"])
@pytest.mark.parametrize("text", ["{a}", "{a} || {b}"])
def test_without_slots_a_row_is_what_the_tokenizer_makes(kind, text):
    tokenizer = getattr(make, kind)()
    fields = {"a": "film a", "b": "a a"}
    encoded, _ = row(tokenizer, text, fields)
    given = tokenizer(fields["a"], *([fields["b"]] if "||" in text else []))
    if kind in ("gpt2", "cpm2") and "||" in text:  # nothing divides two texts there but a space
        assert encoded.ids == tokenizer("film a a a", add_special_tokens=False)["input_ids"]
    else:
        assert encoded.ids == given["input_ids"]
    assert encoded.types == given.get("token_type_ids") and encoded.cut == 0


@pytest.mark.parametrize("kind", ["bert", "roberta", "t5", "cpm2"])
def test_masks_and_vectors_are_where_they_are_said_to_be(kind):
    tokenizer = getattr(make, kind)()
    encoded, tokens = row(tokenizer, "{soft:2} {a} {mask} {soft} {b}", {"a": "film", "b": "a"})
    mask = {"t5": "<extra_id_0>", "cpm2": "<s_0>", "roberta": "<mask>"}.get(kind, "[MASK]")
    assert [tokens[i] for i in encoded.masks] == [mask] and tokens.count(mask) == 1
    start = 1 if kind in ("bert", "roberta") else 0
    assert encoded.softs == [start, start + 1, encoded.masks[0] + 1]
    assert {tokens[i] for i in encoded.softs} == {tokenizer.unk_token}


def test_segments_have_their_types():
    encoded, tokens = row(make.bert(), "{a} {mask} || {b} {soft}", {"a": "film", "b": "good plot"})
    assert tokens == [
        *["[CLS]", "film", "[MASK]", "[SEP]", "good", "plot", "[UNK]", "[SEP]"],
    ]
    assert encoded.types == [0, 0, 0, 0, 1, 1, 1, 1]


def test_byte_level_words_have_the_space_before_them():
    _, tokens = row(make.roberta(), "{a}: {b}{mask}", {"a": "x", "b": "y"})
    assert tokens == ["<s>", "x", ":", "Ġ", "y", "<mask>", "</s>"]


def test_sentencepiece_begins_a_word_only_after_a_space():
    fields = {"a": "film", "options": ["good", "bad"]}
    _, tokens = row(make.t5(), "{a}?{options|letters} {a}{a}", fields)
    assert tokens == [
        *["▁film", "?", "A", ".", "▁good", ".", "B", ".", "▁bad", ".", "▁film", "film"]
    ]
    _, tokens = row(make.t5(), "{a}{mask}.猫 . A", fields)
    assert tokens == ["▁film", "<extra_id_0>", ".", "<unk>", "▁", ".", "▁A"]


def test_each_mask_of_an_encoder_decoder_has_its_own_sentinel():
    encoded, tokens = row(make.t5(), "{a} {mask} {a} {masks}", {"a": "film"}, masks=3)
    assert tokens == ["▁film", "<extra_id_0>", "▁film", "<extra_id_1>"]
    assert encoded.masks == [1, 3]


@pytest.mark.parametrize("kind", ["bert", "roberta", "t5", "cpm2"])
def test_special_tokens_written_in_a_text_are_text(kind):
    tokenizer = getattr(make, kind)()
    special = set(tokenizer.all_special_tokens) - {tokenizer.unk_token}
    written, plain = (
        [token for token in row(tokenizer, "{a} {mask}", {"a": text})[1] if token in special]
        for text in ("film [MASK] <mask> [SEP] </s>", "film")
    )
    assert written == plain


def test_many_masks_are_as_many_as_asked():
    encoded, tokens = row(make.bert(), "{a} {masks} .", {"a": "film"}, masks=3)
    assert tokens == ["[CLS]", "film", *["[MASK]"] * 3, ".", "[SEP]"]
    assert encoded.masks == [2, 3, 4]


def test_without_a_mask_token_the_answer_is_read_at_the_end():
    encoded, tokens = row(make.gpt2(), "{soft} {a} x{mask}", {"a": "y"})
    assert tokens == ["<unk>", "Ġ", "y", "Ġ", "x"] and encoded.masks == [4]
    for text in ("{a} {mask}.", "{mask} {a}"):
        with pytest.raises(UserError, match=r"no mask token.*one answer token at the end"):
            row(make.gpt2(), text, {"a": "y"})
    with pytest.raises(UserError, match="one answer token at the end"):
        row(make.gpt2(), "{a} {masks}", {"a": "y"}, masks=2)
    with pytest.raises(UserError, match="one answer token at the end"):
        row(make.gpt2(), "{a} {mask} {mask}", {"a": "y"})
    with pytest.raises(UserError, match="nothing comes before"):
        row(make.gpt2(), "{a|fact_start}", {"a": "[Y] has [X]", "sub_label": "y"})


def truncated(parts, most):
    """Return parts `(tokens, shortenable)` as P-tuning's few-shot code shortens one segment."""
    while sum(len(tokens) for tokens, _ in parts) > most:
        place = max(i for i, (tokens, may) in enumerate(parts) if may and tokens)
        parts[place] = parts[place][0][:-1], parts[place][1]
    return [token for tokens, _ in parts for token in tokens]


def test_rows_are_shortened_from_the_last_text_as_in_p_tuning():
    rng, encoder = random.Random(1), Encoder(make.bert())
    pattern, other = parse("{~a} is {b} film {~c} {mask}"), 0
    for _ in range(60):
        texts = [" ".join(rng.choices(["good", "bad"], k=rng.randint(1, k))) for k in (9, 3, 9)]
        pieces = pattern.render(dict(zip("abc", texts, strict=True)))
        written = [texts[0], "is", texts[1], "film", texts[2]]
        parts = [(encoder.spelling.encode(text), i in (0, 4)) for i, text in enumerate(written)]
        parts.append((mask_ids(make.bert(), 1)[0], False))
        room = rng.randint(9, 18)
        official = truncated(parts, room - 2)
        assert encoder.encode(pieces, room, rule="last").ids[1:-1] == official
        other += official != encoder.encode(pieces, room).ids[1:-1]
    assert other > 20, "the longest first is another rule"


def loaded(first, second, room, sentinel):
    """Return a pair as NSPPretrainDatasets.py of PPT's code shortens it."""
    ids = [*first, sentinel, *second]
    if len(ids) > room:
        before = ids.index(sentinel)
        one = int(before / len(ids) * (room - 1)) - 1
        two = int((1 - before / len(ids)) * (room - 1)) - 1
        ids = [*ids[:one], sentinel, *ids[before + 1 :][:two]]
    return ids


def test_pairs_are_shortened_in_proportion_as_in_ppt():
    rng, encoder = random.Random(1), Encoder(make.t5())
    pattern = parse("{~first} {mask} {~second}")
    sentinel = mask_ids(make.t5(), 1)[0][0]
    shorter = 0
    for _ in range(60):
        texts = [" ".join(rng.choices(["good", "bad"], k=rng.randint(5, 90))) for _ in range(2)]
        room = rng.randint(40, 100)
        pieces = pattern.render(dict(zip(("first", "second"), texts, strict=True)), [])
        spelled = [encoder.spelling.encode(text) for text in texts]
        official = loaded(*spelled, room, sentinel)
        assert encoder.encode(pieces, room, rule="in_proportion").ids == official
        shorter += official != encoder.encode(pieces, room).ids
    assert shorter > 20, "the longest first is another rule"


def test_literal_text_is_kept_where_a_side_is_shortened_in_proportion():
    pieces = parse("{~a} {mask} a a a a").render({"a": "film " * 9}, [])
    for rule in ("longest", "in_proportion"):
        encoded = Encoder(make.t5()).encode(pieces, 8, rule=rule)
        tokens = make.t5().convert_ids_to_tokens(encoded.ids)
        assert tokens == [*["▁film"] * 3, "<extra_id_0>", *["▁a"] * 4]


def test_a_field_has_its_own_limit():
    fields = {"a": "film good film", "options": ["good bad", "bad"]}
    limits = {"a": 2, "options": 1}
    _, tokens = row(make.t5(), "{a}?{options|letters}", {**fields, "limits": limits})
    assert tokens == ["▁film", "▁good", "?", "A", ".", "▁good", ".", "B", ".", "▁bad", "."]


def test_fields_that_may_be_shortened_go_first():
    fields = {"a": "film film film", "b": "plot plot plot plot"}
    encoded, tokens = row(make.bert(), "{~a} is {b} {mask}", fields, room=9)
    assert tokens == ["[CLS]", "film", "is", *["plot"] * 4, "[MASK]", "[SEP]"]
    assert encoded.cut == 2
    encoded, tokens = row(make.bert(), "{~a} is {b} {mask}", fields, room=6)
    assert tokens == ["[CLS]", "is", "plot", "plot", "[MASK]", "[SEP]"] and encoded.cut == 5


def test_a_row_that_cannot_fit_is_refused():
    with pytest.raises(
        UserError, match=r"takes 7 tokens without any field.*room for 6.*max_tokens"
    ):
        row(make.bert(), "{soft:3} {a} is {mask}", {"a": "film"}, room=6)


WORDS = {"field": ["film", "plot", "good"], "literal": ["the", "was", "of"]}


def random_pieces(rng):
    pieces = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.choice(["literal", "field", "field", "mask", "soft"])
        text = " ".join(rng.choices(WORDS.get(kind, [""]), k=rng.randint(1, 6)))
        text = text if kind in WORDS else ""
        shortenable = kind == "field" and rng.random() < 0.5
        pieces.append(Piece(kind, text, shortenable, count=rng.randint(1, 3)))
    cut = rng.randint(0, len(pieces))
    return [Piece(**{**vars(p), "segment": int(place >= cut)}) for place, p in enumerate(pieces)]


def shortened(pieces, excess):
    """Cut one token at a time, from lists: the rule again, written another way."""
    texts = [p.text.split() for p in pieces]
    for shortenable in (True, False):
        own = [
            i for i, p in enumerate(pieces) if p.kind == "field" and p.shortenable == shortenable
        ]
        while excess > 0 and any(texts[i] for i in own):
            most = max(len(texts[i]) for i in own)
            texts[[i for i in own if len(texts[i]) == most][-1]].pop()
            excess -= 1
    return texts


@pytest.mark.parametrize("seed", range(40))
def test_truncation_loses_only_last_tokens_of_fields(seed):
    rng, tokenizer = random.Random(seed), make.bert()
    pieces, encoder = random_pieces(rng), Encoder(tokenizer)
    full = encoder.encode(pieces, 10_000)
    texts = sum(len(p.text.split()) for p in pieces if p.kind == "field")
    room = rng.randint(max(len(full.ids) - texts, 1), len(full.ids) + 3)
    cut = encoder.encode(pieces, room)
    assert len(cut.ids) == min(room, len(full.ids)) == len(full.ids) - cut.cut
    assert cut.types is not None and len(cut.types) == len(cut.ids)
    tokens = tokenizer.convert_ids_to_tokens(cut.ids)
    assert [tokens[i] for i in cut.masks] == ["[MASK]"] * sum(p.kind == "mask" for p in pieces)
    assert len(cut.softs) == sum(p.count for p in pieces if p.kind == "soft")
    kept = shortened(pieces, len(full.ids) - room)
    expected = []
    for piece, text in zip(pieces, kept, strict=True):
        expected += {"mask": ["[MASK]"], "soft": ["[UNK]"] * piece.count}.get(piece.kind, text)
    assert [token for token in tokens if token not in ("[CLS]", "[SEP]")] == expected


@pytest.mark.parametrize(
    ("kind", "style"),
    [
        *[("bert", "plain"), ("cpm2", "plain"), ("t5", "sentencepiece")],
        *[("roberta", "byte"), ("gpt2", "byte")],
    ],
)
def test_the_style_is_found_by_asking(kind, style):
    assert Spelling(getattr(make, kind)()).style == style


def test_a_sentinel_comes_before_a_mask_token():
    assert mask_ids(make.gpt2(), 1) == ([], False)
    tokenizer = make.cpm2()
    assert tokenizer.mask_token == "<mask>"
    assert mask_ids(tokenizer, 2) == (tokenizer.convert_tokens_to_ids(["<s_0>", "<s_1>"]), True)


def test_the_sentinels_of_mt5_are_pieces_with_a_space():
    tokenizer = make.mt5()
    expected = tokenizer.convert_tokens_to_ids(["▁<extra_id_0>", "▁<extra_id_1>"])
    assert mask_ids(tokenizer, 2) == (expected, True)
    pieces = parse("{~text}{mask}很").render({"text": "film"}, [])
    encoded = Encoder(tokenizer).encode(pieces, 20)
    assert [encoded.ids[place] for place in encoded.masks] == expected[:1]


def test_a_chinese_answer_has_no_space_before_unless_the_vocabulary_has_it_so():
    spelling = Spelling(make.mt5())
    answers = {word: spelling.tokens(spelling.answer(word)) for word in ("矛盾", "中立", "film")}
    assert answers == {"矛盾": ["矛盾"], "中立": ["▁中立"], "film": ["▁film"]}
    assert spelling.tokens(spelling.answer("矛盾很")) == ["矛盾", "很"]
    ids = spelling.answer("矛盾", glued=True)
    assert ids == spelling.answer("矛盾")
