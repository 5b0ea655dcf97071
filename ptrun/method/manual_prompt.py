"""Manual prompt (MP): a written pattern, label words, and nothing learned.

The zero-shot rows of P-tuning's Tables 1-4, and the searched templates of LPAQA and AutoPrompt on
LAMA. `method=fine_tuning readout=verbalizer` tunes the backbone on the same pattern (MP
fine-tuning; PET without ensembles and distillation).

Departs from P-tuning's code on LAMA. That code writes a space before a template, which RoBERTa
and GPT-2 read. Left to right, it cuts a template before the object and leaves a space, which
most of these backbones tokenize as a word of its own; Megatron-11B answers there after an end mark,
`</s>`. ptrun adds none of these, which changes the manual figures of Table 2 (GPT-2 20.3, 22.8;
Megatron-11B 23.1). `readout.released_query=true` does as the code does
(`ptrun.readout.label_words`).
"""

from ptrun.method.base import Method


class ManualPrompt(Method):
    """Reads the backbone as it is.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=manual_prompt")
    >>> method.learned(), method.decode(output, batch)[0].value in method.task.labels
    ({}, True)
    """

    readouts = ("verbalizer", "writing", "distillation")
    learns = False
