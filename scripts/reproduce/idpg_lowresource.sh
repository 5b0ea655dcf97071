#!/usr/bin/env bash
# IDPG, lowresource: Instance-dependent prompts against others with 100, 500 and 1000 training
# examples.
#
# How: As Table 1 with rates 5e-4, 1e-4, 5e-5, 1e-5, batches of 16 and 313, 1,563 or 3,125 steps
# (50 epochs); one sample of examples for all seeds, 1,000 others (775 of CR at 1,000) select,
# the whole dev or test file is reported. Accuracy selects (of sts-b the authors take the lowest
# loss, here (pearson + spearman) / 2). Layers' generators read the pass over the bare text. All
# begin at the MNLI model. Adapter-tuning is Compacter, fine-tuning is EFL, whose descriptions
# and rates are not released (ours; of STS-B, which has no labels, it is tuning of that model).
# Mean and deviation (n, not n - 1) over seeds 1 to 5.
#
# 240 cells, 5 seeds each. GPU hours: about 350 on one A100, most of it evaluation of 50 epochs
# (an estimate, 15 steps a second and dev after each epoch; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/lowresource check=true "$@"
ptrun experiment=idpg/lowresource "$@"
report=(--paper idpg --table lowresource)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
