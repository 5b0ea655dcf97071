#!/usr/bin/env bash
# P-tuning, table4: Fully supervised SuperGLUE, large-size backbones, fine-tuning against
# patterns by hand and learned.
#
# How: AdamW, linear to 0, rate of 1e-5, 2e-5, 3e-5 and batches of 16 or 32 by dev, 20 epochs
# (COPA, WSC, CB, RTE) or 10; the best epoch on the dev set that is also reported. No code,
# seeds or deviations are published: three seeds here; which pattern was used for which backbone
# is not told: the released few-shot ones here, others are method.pattern=ptuning_alt1 and so
# on. AVG is over seven tasks, CB and MultiRC each the mean of its two metrics.
#
# 53 cells, 3 seeds each. GPU hours: about 150 on one A100 (an estimate, 6 operations a
# parameter and token at a fifth of its peak; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table4 check=true "$@"
ptrun experiment=ptuning/table4 "$@"
report=(--paper ptuning --table table4)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
