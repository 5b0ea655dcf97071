#!/usr/bin/env bash
# Check, run and report a table or figure of a paper:
#
#     scripts/reproduce.sh PAPER/TABLE [KEY=VALUE ...]
#     scripts/reproduce.sh dpt/table1 data_dir=DIR hardware=gpu
#
# conf/experiment holds the tables: the protocol, the seeds and about how many GPU hours each takes.
# All other arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

name=${1-}
ptrun experiment="$name" check=true "${@:2}"
ptrun experiment="$name" "${@:2}"
report=(--paper "${name%%/*}" --table "${name#*/}")
for given in "${@:2}"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"
