#!/usr/bin/env bash
# lint_kernels.sh -- every OpenCL kernel file stands on its own.
#
# 1. kernels/*.cl compiles alone, as core OpenCL C 1.2 with no extension (a double literal is an error: phones have none),
#    so every macro it uses has a default; -Wundef sees to those that only an #if reads.
#    The same with operands read through images or stored as half and rows shared by a group, and in OpenCL C 3.0 with
#    sub-groups.
# 2. Each default says what it is for: #ifndef TM / #define TM 4  // rows of the tile
# 3. Each file opens with a comment: the formula and the memory layout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kernels=src/backend/opencl/kernels
clang=${CLANG:-clang}
if ! command -v "$clang" >/dev/null; then
  echo "kernels: clang is missing; install it with: apt-get install clang" >&2
  exit 1
fi
shopt -s nullglob
sources=("$kernels"/*.cl)
headers=("$kernels"/*.clh)
if ((${#sources[@]} == 0)); then
  echo "kernels: found no .cl file in $kernels" >&2
  exit 1
fi

# opencl-c.h by name, because clang's built-in declarations lose vload_half together with half arithmetic.
# Parameters may be unused: an epilogue that is switched off reads none of its own.
compiles_alone() {
  local standard=CL1.2 extensions=-all
  if [[ " $* " == *" -DSUB=1 "* ]]; then standard=CL3.0 extensions=+__opencl_c_subgroups,+cl_khr_subgroups; fi
  "$clang" -target spir64-unknown-unknown -fsyntax-only -x cl -cl-std=$standard -cl-no-stdinc -include opencl-c.h \
    -Xclang -cl-ext=$extensions -I "$kernels" -Wall -Wextra -Wundef -Wshadow -Wno-unused-parameter -Werror "$@"
}

# Prints file:line: sentence for each default without a comment; include guards (NAME_CLH, no value) need none.
defaults_have_comments() {
  awk '
    FNR == 1 && $0 !~ /^\/[\/*]/ { print FILENAME ":1: the file must open with a comment: formula and memory layout"; bad = 1 }
    /^[ \t]*#[ \t]*ifndef[ \t]/ { line = $0; sub(/^[ \t]*#[ \t]*ifndef[ \t]+/, "", line); split(line, word, /[ \t]/); name = word[1]; at = FNR; guard = $0; next }
    name != "" && /^[ \t]*#[ \t]*define[ \t]/ {
      line = $0; sub(/^[ \t]*#[ \t]*define[ \t]+/, "", line); split(line, word, /[ \t(]/)
      if (word[1] == name && name !~ /_CLH$/ && $0 !~ /\/[\/*][ ]*[^ ]/ && guard !~ /\/[\/*][ ]*[^ ]/) {
        print FILENAME ":" FNR ": the default of " name " needs a comment saying what it is"; bad = 1
      }
    }
    { if (FNR != at) name = "" }
    END { exit bad }
  ' "$@"
}

failed=0
for source in "${sources[@]}"; do
  compiles_alone "$source" || { echo "kernels: $source does not compile alone" >&2; failed=1; }
done
variants=("gemm -DB_IMAGE=1 -DA_IMAGE=1" "gemm -DB_IMAGE=2 -DVW=16" "gemm -DSUB=1 -DB_IMAGE=1" "conv -DB_IMAGE=1 -DVW=8"
  "conv -DB_IMAGE=2 -DA_IMAGE=1" "conv_dw -DB_IMAGE=1" "conv_dw -DB_IMAGE=2" "norm_rows -DROW_ITEMS=16"
  "norm_rows -DROW_ITEMS=16 -DSUB=1" "softmax -DROW_ITEMS=16" "softmax -DROW_ITEMS=16 -DSUB=1" "reduce -DROW_ITEMS=16"
  "reduce -DROW_ITEMS=16 -DSUB=1 -DKIND=1" "gemm -DHALVES=1 -DA_T=half -DB_T=half -DY_T=half"
  "gemm -DHALVES=1 -DB_IMAGE=1 -DA_T=half" "conv -DHALVES=1 -DA_T=half -DB_T=half" "conv_dw -DHALVES=1 -DA_T=half -DB_T=half"
  "norm_rows -DROW_ITEMS=16 -DHALVES=1 -DX_T=half -DY_T=half")
for variant in "${variants[@]}"; do
  read -r name macros <<<"$variant"
  # shellcheck disable=SC2086  # several macros
  compiles_alone $macros "$kernels/$name.cl" || { echo "kernels: $variant does not compile" >&2; failed=1; }
done
defaults_have_comments "${sources[@]}" "${headers[@]}" || failed=1
if ((failed)); then exit 1; fi
echo "kernels: ${#sources[@]} files compile alone, every default has its comment"
