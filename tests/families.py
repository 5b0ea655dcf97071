"""A backbone of any family, those of the papers too where their folder is there."""

from functools import partial

from ptrun.backbone.pretrained import PretrainedBackbone

try:
    from ptrun.papers.backbone import families
except ModuleNotFoundError:  # the core alone
    families = dict

FAMILIES = families()
PaperBackbone = partial(PretrainedBackbone, families=FAMILIES)
