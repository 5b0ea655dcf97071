#!/usr/bin/env bash
# P-tuning v2, Table 2: SuperGLUE, fine-tuning, shallow and deep prompts, from 0.3 to 10 billion
# parameters.
#
# Protocol: AdamW, linear decay to 0, no weight decay, clip 1, fp32. The best epoch is chosen on
# the dev set that is reported. PT-2 has the rows of the released scripts. The paper prints one
# number and no deviation; here there are three seeds, those of the scripts (11, 14, 44). CB,
# MultiRC, ReCoRD and all of PT have no script. There, rate and length are searched on the only
# published grid (COPA, RoBERTa); on MultiRC and ReCoRD only the rate, at length 16. Their
# epochs and batches are ours. FT is not described; it has P-tuning's rates, batches and epochs,
# and the library's head: on RoBERTa a trained one. PT embeds the text once. The released code
# embeds it twice by mistake (method.double_embedding=true). RoBERTa on WSC has the accuracy of
# the majority class, 63.5, with FT and PT-2. GLM has a verbalizer and no head. The paper does
# not say how GLM was trained: length, rate, epochs, runs and PT are not known. PT-2 here has
# the options of GLM's released prompt runs: hidden states as prefixes, length 100, rate 1e-2
# after a warm-up of 1 %, decay 1e-4, no clip, pattern 0, their epochs. Those runs are of
# November 2021, after the paper's first version, with GLM-RoBERTa-large. None is on ReCoRD (2
# epochs, ours), and their seeds differ (1234, 5678, 3456). PT has the form of GLM's code. Its
# length (100) and rates (5e-3, 7e-3, 1e-2 searched; 1e-2 on MultiRC and ReCoRD) are ours; the
# rest is as PT-2. FT has the options of GLM's scripts for 10B, also for 2B. Those scripts train
# ReCoRD against at most 10 entities, here against all. They also replace curly quotes by
# straight ones.
#
# 96 cells, 3 seeds each. GPU hours: about 350 on one A100 for BERT and RoBERTa, half of it
# ReCoRD; about 600 for GLM-2B and 3000 for GLM-10B, three fifths of it ReCoRD, with FT of 10B
# on four GPUs or more (estimated: 4 to 6 operations per parameter and token at a fifth of the
# peak; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/table2 check=true "$@"
ptrun experiment=ptuning_v2/table2 "$@"
report=(--paper ptuning_v2 --table table2)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
