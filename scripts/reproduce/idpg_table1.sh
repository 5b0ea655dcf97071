#!/usr/bin/env bash
# IDPG, Table 1: Instance-dependent prompts, other prompts, adapters and fine-tuning,
# RoBERTa-large, all training examples.
#
# Protocol: The backbone is frozen except for RoBERTa and EFL. AdamW with betas .9 and .98,
# weight decay .1 on every tensor, constant rate, no clip (10 on RTE for dense generators). The
# best rate of four is chosen for each task. The best epoch is chosen on the split that is
# reported: GLUE's dev, and the test file of CR, MR, MPQA and Subj. Heads have no dropout.
# Accuracy selects. On STS-B the loss is the squared error of score / 5, and the epoch with the
# lowest is taken. Mean and deviation (n, not n - 1) are over seeds 1 to 5. The paper does not
# say which rows start from an MNLI model. Prompt tuning and S-IDPG beat fine-tuning on RTE, so
# they start from it here. RoBERTa and EFL are not in the released code. Here they have RoBERTa's
# own rates, weight decay and warm-up, 10 epochs and batches of 16. EFL's descriptions are ours.
# STS-B has no labels, so its EFL cell is fine-tuning of the MNLI model. For majority votes of
# the seeds, type ptrun report outputs --vote.
#
# 120 cells, 5 seeds each. GPU hours: about 1500 on one A100, three quarters of it QQP, QNLI and
# SST-2 (estimated from steps, 10 to 15 per second; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/table1 check=true "$@"
ptrun experiment=idpg/table1 "$@"
report=(--paper idpg --table table1)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
