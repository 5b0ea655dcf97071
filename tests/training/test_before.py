"""Warnings before training: they name the remedy, and good runs have none."""

from types import SimpleNamespace

import pytest

from ptrun.backbone.files import SHIPPED
from ptrun.readout.base import Features, TokenRow
from ptrun.training.health import cut_texts, far_rate, toy, unread_mean

USUAL = {"prompt": 1e-2, "encoder": 1e-4, "full": 5e-5}


def backbone(folder):
    return SimpleNamespace(name="own", folder=folder)


def task(name="reviews", kind="classification", max_tokens=128):
    return SimpleNamespace(name=name, kind=kind, max_tokens=max_tokens)


def test_a_toy_on_real_text_is_told(tmp_path):
    assert "toy" in toy(backbone(SHIPPED / "pocket_bert"), task())
    assert toy(backbone(SHIPPED / "pocket_bert"), task("pocket_ner")) is None
    assert toy(backbone(tmp_path), task()) is None
    assert toy(backbone(None), task()) is None  # of the hub


def reading(folder, **readout):
    own = SimpleNamespace(**{"pooler": None, **readout})
    return SimpleNamespace(backbone=backbone(folder), readout=own)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}', True),
        ('{"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true}', False),
        ('{"pooling_mode": "mean"', False),
        ("[]", False),
        ("[" * 100_000, False),
        (None, False),
    ],
)
def test_a_head_on_one_token_of_a_model_of_means_is_told(tmp_path, content, told):
    if content is not None:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling/config.json").write_text(content)
    found = unread_mean(reading(tmp_path, pooler="auto"))
    assert found is None or "readout.pooler=auto reads one; try readout.pooler=mean" in found
    assert (found is not None) is told
    assert unread_mean(reading(tmp_path, pooler="mean")) is None
    assert unread_mean(reading(tmp_path)) is None  # no pooler: tags of words
    assert unread_mean(reading(None, pooler="auto")) is None


@pytest.mark.parametrize(
    ("rate", "tunes", "words"),
    [
        (1000, False, "train.lr=1000 is far above the usual rate"),
        (1e-7, False, "of this backbone; try train.lr=0.0001"),
        (1e-2, True, "far above"),
        (1e-2, False, None),
        (1e-4, False, None),
        (3e-4, True, None),
    ],
)
def test_a_rate_two_orders_off_is_told(rate, tunes, words):
    found = far_rate(rate, USUAL, tunes=tunes)
    assert found is None if words is None else words in found
    assert far_rate(rate, {}, tunes=tunes) is None


def rows(full, short):
    lengths = [128] * full + [20] * short
    return [Features(str(i), [TokenRow([5] * n)], [0]) for i, n in enumerate(lengths)]


def test_many_cut_texts_are_told():
    assert cut_texts(rows(10, 90), task(), 512) is None
    found = cut_texts(rows(11, 89), task(), 512)
    assert (
        found.startswith("11 of 100 texts fill the limit of 128 tokens") and "max_tokens" in found
    )
    assert "no more positions" in cut_texts(rows(11, 89), task(max_tokens=None), 128)
    assert cut_texts([], task(), 512) is None
