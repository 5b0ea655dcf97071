#!/usr/bin/env bash
# IDPG, figure3: Generators of M-IDPG-PHM by sharing (S all, M all but biases, L nothing), input
# and width.
#
# How: as Table 1
#
# 51 cells, 5 seeds each. GPU hours: about 300 on one A100 (an estimate from steps, as Table 1;
# nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/figure3 check=true "$@"
ptrun experiment=idpg/figure3 "$@"
report=(--paper idpg --table figure3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
