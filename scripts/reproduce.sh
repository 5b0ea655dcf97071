#!/usr/bin/env bash
# usage: scripts/reproduce.sh PAPER/TABLE [KEY=VALUE ...]
#        scripts/reproduce.sh dpt/table1 data_dir=DIR hardware=gpu
#
# Check, run and report a table or figure of a paper.
#
# conf/experiment holds the tables: the protocol, the seeds and about how many GPU hours each takes.
# All other arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

name=${1-}
if [[ $name =~ ^(-h|--help)$ ]]; then sed -n '2,/^$/s/^# \?//p' "$0"; exit; fi
ptrun experiment="$name" check=true "${@:2}"
code=0
ptrun experiment="$name" "${@:2}" || code=$?  # runs that failed are in the report
if ((code > 128)); then exit "$code"; fi  # a signal
report=(--paper "${name%%/*}" --table "${name#*/}")
for given in "${@:2}"; do
  case $given in
    outputs=*) report+=(--outputs "${given#outputs=}") ;;
    +scale=*)  # a smoke test has no rows to report
      grep -q '^pocket:' "$(dirname "$0")/../conf/experiment/$name.yaml" || exit "$code"
      report+=(--scale "${given#+scale=}") ;;
  esac
done
ptrun report "${report[@]}"
exit "$code"
