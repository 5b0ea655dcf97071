#!/usr/bin/env bash
# IDPG, position: Place of the prompt (0 after the first token, 1 before the first separator, 2
# after it, 3 before the last, 4 at the end).
#
# How: as Table 1, from the MNLI model
#
# 20 cells, 5 seeds each. GPU hours: about 130 on one A100 (an estimate from steps, as Table 1;
# nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/position check=true "$@"
ptrun experiment=idpg/position "$@"
report=(--paper idpg --table position)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
