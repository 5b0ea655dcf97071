#!/usr/bin/env bash
# P-tuning v2, Figure 4: Length of prompts and their reparameterization, RoBERTa-large.
#
# Protocol: As Tables 2 and 3, with the rows of their scripts except for the length. With an
# MLP, the rate is that of the only script that has one (WiC, 1e-4). Names and roles: test F1 at
# the best epoch on dev.
#
# 46 cells, 3 seeds each. GPU hours: about 50 on one A100 without CoNLL12 (estimated as in Table
# 2; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/figure4 check=true "$@"
ptrun experiment=ptuning_v2/figure4 "$@"
report=(--paper ptuning_v2 --table figure4)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
