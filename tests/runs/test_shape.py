"""What runs must have in common to share passes."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.runs.plan import plan, shape
from tests.tiers import tiered


@pytest.fixture
def shape_of(small):
    return lambda *overrides, backbone="bert": shape(plan(small(*overrides, backbone=backbone)))


SAME = ["seed=2", "data_seed=2"]
SAME += ["train.lr=0.5 train.batch_size=4 train.max_steps=9 train.patience=1"]
SAME += ["train.weight_decay=0.1 train.schedule=constant train.warmup=0.1", "method.length=3"]
SAME += ["setting=few_shot_32", "method.dropout=0.3", "name=other"]
OTHER = ["task=pocket_sentiment", "method=prompt_tuning", "method.prefix_kind=hidden"]
OTHER += ["backbone.dropout=0.0", "method.shift_positions=false", "protocol=paper"]
OTHER += ["hardware.token_budget=100"]
CORE = (*SAME[:2], *OTHER[:2])


@pytest.mark.parametrize("typed", tiered([*SAME, *OTHER], CORE.__contains__))
def test_runs_share_passes_unless_the_passes_or_the_task_differ(shape_of, typed):
    assert (shape_of(*typed.split()) == shape_of() is not None) == (typed in SAME)
    assert typed != CORE[0] or shape_of(backbone="roberta") != shape_of()


@pytest.mark.parametrize("method", ["fine_tuning", "dora", "dpt"])
def test_a_method_that_changes_the_backbone_runs_alone(shape_of, method):
    backbone = "electra" if method == "dpt" else "bert"
    assert shape_of(f"method={method}", backbone=backbone) is None


def test_members_of_lora_may_differ_in_its_maps_but_not_in_what_they_change(shape_of):
    ranks = [shape_of("method=lora", f"method.rank={r}", "method.alpha=2") for r in (2, 8)]
    assert ranks[0] == ranks[1] is not None
    assert shape_of("method=lora", "method.targets=[key]") not in (None, ranks[0])


def test_maps_that_read_relative_positions_are_changed_alone(shape_of):
    default = shape_of("method=lora", backbone="deberta-v2")
    values = shape_of("method=lora", "method.targets=[value_proj]", backbone="deberta-v2")
    assert default is None and values is not None


def test_a_random_pooler_is_part_of_the_backbone(shape_of):
    frozen = [shape_of("readout.pooler=frozen", f"seed={n}", backbone="roberta") for n in (1, 2)]
    assert frozen[0] != frozen[1]
    stored = [shape_of("readout.pooler=frozen", f"seed={n}") for n in (1, 2)]
    assert stored[0] == stored[1]


def test_runs_on_other_commits_of_a_backbone_share_nothing(tmp_path):
    made = plan(compose_run(["backbone=bert_base_cased", f"outputs={tmp_path}"]))
    before = shape(made)
    made.backbone.repository.recorded = "a" * 40
    assert before is not None and shape(made) not in (None, before)
