#!/usr/bin/env bash
# IDPG, Figure 3: Generators of M-IDPG-PHM by sharing (S all, M all but biases, L nothing),
# input and width.
#
# Protocol: as Table 1.
#
# 51 cells, 5 seeds each. GPU hours: about 300 on one A100 (estimated from steps, as Table 1;
# not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/figure3 check=true "$@"
ptrun experiment=idpg/figure3 "$@"
report=(--paper idpg --table figure3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
