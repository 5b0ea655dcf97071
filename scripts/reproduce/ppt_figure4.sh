#!/usr/bin/env bash
# PPT, Figure 4: Accuracy by number of training examples, T5-XXL.
#
# Protocol: As Table 4, with as many dev as training examples. The first release of the code has
# options for CB and BoolQ only (100 epochs, evaluated every 20 or 50, rates of 5e-3 to 1e-2).
# RACE-m has Table 4's rates and epochs here, evaluated every 20.
#
# 9 cells, 5 seeds each. GPU hours: about 60 on A100s, with FT on four (as Table 4; not
# measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ppt/figure4 check=true "$@"
ptrun experiment=ppt/figure4 "$@"
report=(--paper ppt --table figure4)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
