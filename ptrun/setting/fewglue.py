"""FewGLUE: the 32 training and 32 dev examples of PET and P-tuning, from their own files.

The files are those of FewGLUE_32dev, as `<data_dir>/fewglue/<task>/{train,validation}.jsonl`;
reported is the task's own published dev set. They are skewed on purpose (CB has 3 neutral, WSC no
negative training examples) and are never re-balanced.
"""

from ptrun.setting.full import Full


class FewGlue(Full):
    """The files of FewGLUE_32dev instead of the task's train and dev."""

    variant: str | None = "fewglue"
    required = True
