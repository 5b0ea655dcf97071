"""A backbone of any family, those of the papers too."""

from functools import partial

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.papers.backbone import families

FAMILIES = families()
PaperBackbone = partial(PretrainedBackbone, families=FAMILIES)
