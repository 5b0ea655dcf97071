"""FewGLUE: the 32 training and 32 dev examples of PET and P-tuning, from their own files.

The files of FewGLUE_32dev are `<data_dir>/fewglue/<task>/{train,validation}.jsonl`. The published
dev set of the task is the test set. The classes are skewed on purpose (CB has 3 neutral, WSC no
negative training examples) and stay so.
"""

from ptrun.setting.full import Full


class FewGlue(Full):
    """The files of FewGLUE_32dev instead of the task's train and dev."""

    variant: str | None = "fewglue"
    required = True
