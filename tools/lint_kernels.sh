#!/usr/bin/env bash
# lint_kernels.sh -- every OpenCL kernel file stands on its own.
#
# 1. kernels/*.cl compiles alone, as core OpenCL C 1.2 with no extension (a double literal is an error: phones have none),
#    so every macro it uses has a default; -Wundef sees to those that only an #if reads.
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
  "$clang" -target spir64-unknown-unknown -fsyntax-only -x cl -cl-std=CL1.2 -cl-no-stdinc -include opencl-c.h \
    -Xclang -cl-ext=-all -I "$kernels" -Wall -Wextra -Wundef -Wshadow -Wno-unused-parameter -Werror "$1"
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
defaults_have_comments "${sources[@]}" "${headers[@]}" || failed=1
if ((failed)); then exit 1; fi
echo "kernels: ${#sources[@]} files compile alone, every default has its comment"
