#!/usr/bin/env bash
# IDPG, table1: Instance-dependent prompts against prompts, adapters and fine-tuning,
# RoBERTa-large, all training examples.
#
# How: The backbone is frozen but for RoBERTa and EFL. AdamW with betas .9, .98, decay .1,
# constant rate, no clip (RTE of dense generators 10); the best rate of four for each task; the
# best epoch on the split that is also reported (GLUE's dev; of CR, MR, MPQA, Subj the test
# file): accuracy selects (of STS-B the authors take the lowest loss, here (Pearson + Spearman)
# / 2). Mean and deviation (n, not n - 1) over seeds 1 to 5. Which rows begin at an MNLI model
# is not told; RTE above fine-tuning tells of prompt tuning and S-IDPG, which do here. RoBERTa
# and EFL are not in the released code: RoBERTa's own rates, decay and warm-up, 10 epochs,
# batches of 16; EFL's descriptions are ours, and of STS-B, which has no labels, it is tuning of
# the MNLI model. Majority votes of the seeds: ptrun report vote=true.
#
# 120 cells, 5 seeds each. GPU hours: about 1500 on one A100, of which QQP, QNLI and SST-2 are
# three quarters (an estimate from steps, 10 to 15 a second; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/table1 check=true "$@"
ptrun experiment=idpg/table1 "$@"
report=(--paper idpg --table table1)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
