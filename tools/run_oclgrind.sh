#!/usr/bin/env bash
# run_oclgrind.sh TEST_PROGRAM [FILTER] -- runs the tests named Oclgrind* inside oclgrind, which sees data races, accesses
# out of bounds and wrong API calls. Fails if it reports anything, if a test fails, or if none ran.
#
# oclgrind is used as the only OpenCL driver, not through its own command: that preloads a library, and a program which opens
# libOpenCL by name would get half of each.
set -euo pipefail
if (($# < 1)); then
  echo "usage: run_oclgrind.sh TEST_PROGRAM [FILTER]" >&2
  exit 2
fi
tests=$1
filter=${2:-Oclgrind*}

prefix=$(dirname "$(dirname "$(readlink -f "$(command -v oclgrind || echo /usr/bin/oclgrind)")")")
shopt -s nullglob
drivers=("$prefix"/lib/oclgrind/liboclgrind-rt-icd.so "$prefix"/lib/*/oclgrind/liboclgrind-rt-icd.so "$prefix"/lib/liboclgrind-rt-icd.so)
driver=
for candidate in "${drivers[@]}"; do
  if [[ -z $driver && -e $candidate ]]; then driver=$candidate; fi
done
if [[ -z $driver ]]; then
  echo "oclgrind: its driver is missing; install it with: apt-get install oclgrind" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/vendors"
echo "$driver" >"$work/vendors/oclgrind.icd"
touch "$work/report"

# A cache of its own, so that kernels are built from source and the report can name their lines.
status=0
OCL_ICD_VENDORS=$work/vendors XDG_CACHE_HOME=$work/cache OCLGRIND_LOG=$work/report OCLGRIND_DATA_RACES=1 \
  OCLGRIND_CHECK_API=1 OCLGRIND_MAX_ERRORS=20 "$tests" --gtest_filter="$filter" 2>&1 | tee "$work/output" || status=$?

passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/output" | tail -1)
if [[ -s $work/report ]]; then
  head -100 "$work/report"
  echo "oclgrind: reported errors" >&2
  exit 1
elif ((status != 0)); then
  echo "oclgrind: a test failed (exit code $status)" >&2
  exit 1
elif ((${passed:-0} == 0)); then
  echo "oclgrind: no test ran with --gtest_filter=$filter" >&2
  exit 1
fi
echo "oclgrind: $passed tests, nothing to report"
