#!/usr/bin/env bash
# PPT, table1: Hard prompts and label words beside a learned prompt, SST-2.
#
# How: As Table 4 (task and data, steps, evaluations); rates searched on dev. Label words are
# told as positive/negative. The code puts Man#2's words behind the sentence, where the paper
# prints them before it; here as the code. Gen#2 is here as printed: the code's has other words
# before the sentence.
#
# 7 cells, 5 seeds each. GPU hours: about 15 on one A100 (as Table 4; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ppt/table1 check=true "$@"
ptrun experiment=ppt/table1 "$@"
report=(--paper ppt --table table1)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
