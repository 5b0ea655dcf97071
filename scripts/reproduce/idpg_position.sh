#!/usr/bin/env bash
# IDPG, appendix A.5: Position of the prompt (0 after the first token, 1 before the first
# separator, 2 after it, 3 before the last, 4 at the end).
#
# Protocol: as Table 1, from the MNLI model.
#
# 32 cells, 5 seeds each. GPU hours: about 210 on one A100 (estimated from steps, as Table 1; not
# measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/position check=true "$@"
ptrun experiment=idpg/position "$@"
report=(--paper idpg --table position)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
