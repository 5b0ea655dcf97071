#!/usr/bin/env bash
# P-tuning, Table 6: Four manual prompts and a learned one on RTE, scored on all of dev and on
# the 32 examples that select.
#
# Protocol: As Table 5 (RTE). Models with manual prompts are tuned as in PET, for 250 steps.
# P-tuning has 3500 steps, prompt rate 1e-4 and 150 steps of warm-up. Both numbers are of the
# checkpoint that dev32 selects. The paper does not give the words of the fourth prompt; here
# they are true and false.
#
# 4 cells, 3 seeds each. GPU hours: about 2 on one A100 (estimated from steps; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table6 check=true "$@"
ptrun experiment=ptuning/table6 "$@"
report=(--paper ptuning --table table6)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
