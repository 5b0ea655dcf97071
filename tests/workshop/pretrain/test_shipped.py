"""The shipped models have learned what their figures say."""

import json
from dataclasses import replace

import pytest
import torch
import transformers

from ptrun.backbone.files import SHIPPED as MODELS
from workshop.pocket.corpus import documents
from workshop.pretrain.__main__ import read, recipes
from workshop.pretrain.building import class_of, objective_of, positions_of, stream
from workshop.pretrain.rows import rows
from workshop.pretrain.training import Pretraining
from workshop.pretrain.vocabulary import marks

NAMES = sorted(folder.name for folder in MODELS.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_learned_as_much_as_its_figures_say(name):
    """On the held-out text: the loss within 0.01 of the written one, fp16 weights and all."""
    recipe = read([f"backbone={name}"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS / name)
    recipe = replace(recipe, vocabulary=len(tokenizer), device="cpu")
    model = _model(name, recipe.objective)
    generator = _model("pocket_bert", "masked") if recipe.generator else None
    packed = rows(tokenizer.backend_tokenizer, documents("validation"), recipe.length)
    held_out = stream(packed, recipe, marks(tokenizer), positions_of(model, recipe), 0.0)
    found = Pretraining(model, objective_of(recipe, generator), recipe).evaluate(held_out)
    written = json.loads((MODELS / name / "result.json").read_text())["validation"]
    assert found["loss"] == pytest.approx(written["loss"], abs=0.01)
    assert found["loss"] < 0.8 * found["constant_loss"]


def _model(name, objective):
    made = class_of(objective).from_pretrained(MODELS / name, dtype=torch.float32)
    return made.eval()


def test_every_shipped_model_has_its_recipe():
    for name in NAMES:
        told = json.loads((MODELS / name / "result.json").read_text())["plan"]
        recipe = vars(read([f"backbone={name}"]))
        assert {key: recipe[key] for key in ("model", "rate", "steps", "masked")} == {
            key: told[key] for key in ("model", "rate", "steps", "masked")
        }
    assert set(NAMES) <= set(recipes())
