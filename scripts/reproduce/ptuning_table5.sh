#!/usr/bin/env bash
# P-tuning, table5: SuperGLUE dev after 32 training examples.
#
# How: Steps, rates, lengths and patterns of the released scripts (the paper says 3500 steps for
# all). Two AdamW: backbone 1e-5, decay 0.1; prompt encoder without decay; linear to 0, clip 1,
# batches of 16. Every 20 steps on dev32, the last as good is kept (CB, MultiRC: in both
# metrics), stop after 10 without a gain; the kept one on the dev set. Three repetitions. The
# authors say themselves that CB's script does not give the printed number, and that few-shot
# results move with devices and versions.
#
# 14 cells, 3 seeds each. GPU hours: about 8 on one A100 (an estimate from steps and ALBERT's 12
# passes of one large layer; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table5 check=true "$@"
ptrun experiment=ptuning/table5 "$@"
report=(--paper ptuning --table table5)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
