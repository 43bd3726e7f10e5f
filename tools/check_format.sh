#!/usr/bin/env bash
# check_format.sh [--fix] -- every C++ file is formatted as .clang-format says; --fix rewrites those that are not.
# Looks at tracked files and new ones that git does not ignore; without git, at the source folders.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

list_files() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -co --exclude-standard -- '*.h' '*.hpp' '*.cpp' '*.cc'
  else
    find include src cli tests bench python -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.cpp' -o -name '*.cc' \) 2>/dev/null
  fi
}

formatter=${CLANG_FORMAT:-clang-format}
if ! command -v "$formatter" >/dev/null; then
  echo "format: clang-format is missing; install it with: apt-get install clang-format" >&2
  exit 1
fi

files=()
while IFS= read -r file; do
  if [[ -f $file ]]; then files+=("$file"); fi # a file deleted but not yet committed is still listed
done < <(list_files | sort -u)
if ((${#files[@]} == 0)); then
  echo "format: found no C++ file to check" >&2
  exit 1
fi

if [[ ${1:-} == --fix ]]; then
  "$formatter" -i "${files[@]}"
  echo "format: ${#files[@]} files formatted"
elif "$formatter" --dry-run -Werror "${files[@]}"; then
  echo "format: ${#files[@]} files are as .clang-format says"
else
  echo "format: run tools/check_format.sh --fix" >&2
  exit 1
fi
