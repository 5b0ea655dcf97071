#!/usr/bin/env bash
# IDPG, run log: Accuracy by learning rate of P-tuning v2 (IDPG's form) and M-IDPG-PHM.
#
# Protocol: as Table 1, with each rate alone, from the MNLI model.
#
# 12 cells, 5 seeds each. GPU hours: about 12 on one A100 (estimated from steps, as Table 1; not
# measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/run_log check=true "$@"
ptrun experiment=idpg/run_log "$@"
report=(--paper idpg --table run_log)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
