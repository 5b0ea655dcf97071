"""A family that is read from a traced pass, on many model types: each proof, and each refusal."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone import proof
from ptrun.backbone.pretrained import PretrainedBackbone
from tests.backbone import types

KINDS = [kind for group in types.GROUPS.values() for kind in group if "llama" not in kind]
FUSED = {"qwen3_moe", "mixtral", "gpt_oss", "olmoe", "granitemoe", "phimoe", "deepseek_v3"}


@pytest.fixture(autouse=True)
def forgets(tmp_path, monkeypatch):
    """Keep no proof of one test for another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = types.make(kind, tmp_path_factory.mktemp(kind))
        return made[kind]

    return folder


def read(folder, kind):
    return PretrainedBackbone(name=kind, path=str(folder), dtype="fp32")


@pytest.mark.parametrize("kind", KINDS)
def test_a_probed_model_passes_its_proof(folder_of, kind):
    backbone = read(folder_of(kind), kind)
    assert backbone.architecture.probed
    backbone.load()
    assert [check.passed for check in proof.prove(backbone)] == [True] * 4
    packed = backbone.architecture.packed is not None
    assert packed == (types.group_of(kind) != "seq2seq")
    if packed:
        given = proof._rows(backbone, (7, 4, 5))
        rows = proof.Positions(*given.mask.nonzero(as_tuple=True))
        given = replace(given, hidden_at=rows)
        own = backbone.forward(given).hidden
        backbone.architecture = replace(backbone.architecture, packed=None)
        padded = backbone.forward(given).hidden
        torch.testing.assert_close(own, padded, rtol=1e-4, atol=1e-5 * float(padded.abs().max()))
