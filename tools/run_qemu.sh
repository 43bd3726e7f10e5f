#!/usr/bin/env bash
# run_qemu.sh BUILD_FOLDER [MACHINE...] -- runs the CPU's part of the suite, built for aarch64, on processors that qemu-user
# plays, and checks that the kernels run with the instruction set each should have. MACHINE: cortex-a72, cortex-a76, sve16,
# sve32, sve64 (SVE, vectors of so many bytes); all of them if none is named. One machine per core at a time.
set -euo pipefail
if (($# < 1)); then
  echo "usage: run_qemu.sh BUILD_FOLDER [MACHINE...]" >&2
  exit 2
fi
folder=$1
shift
if (($# == 0)); then set -- cortex-a72 cortex-a76 sve16 sve32 sve64; fi

# Every kernel, the sets' own tests (LeNet-5 for 20 steps among them), and what is quick of the rest. Of twins, which no
# Arm processor has units for, one: their loops are slow here.
export SITU_TEST_DEVICES=cpu,ref
filter='*Kernels*cpu*:Simd.*:LongSums.*:*FastProducts.*:Twins.AreAs*:StrangeIds.*:WinogradSums.*:MaskedPooling.*:*Lookups*:Fixtures/Torch.*/cpu_lenet5_sgd:Fixtures/Torch.*/cpu_mlp_adamw'
filter+=':ByHand.*:Ops.*:Verify.*:Views.*:InPlace.*:Place.*:Checker.*:States.*:Hoist.*:Golden.*'
filter+=':Safetensors.*:IdxFile.*:Batches.*:Synthetic.*:Schedules.*:ThreadPool.*:Pages.*:*Sessions*/cpu'

run_machine() { # NAME
  local cpu=$1 simd="NEON 4" start=$SECONDS
  case $1 in
    cortex-*) ;;
    sve16) cpu=max,sve-max-vq=1 simd="SVE 4" ;;
    sve32) cpu=max,sve-max-vq=2 simd="SVE 8" ;;
    sve64) cpu=max,sve-max-vq=4 simd="SVE 16" ;;
    *) echo "run_qemu: there is no machine $1" >&2 && return 2 ;;
  esac
  local log=$folder/qemu-$1.log
  if ! SITU_TEST_SIMD=$simd qemu-aarch64 -cpu "$cpu" "$folder/situ_tests" --gtest_filter="$filter" --gtest_brief=1 >"$log" 2>&1; then
    tail -50 "$log"
    echo "run_qemu: $1 FAILED, see $log" >&2
    return 1
  fi
  echo "$1: $(sed -n 's/^simd: //p; s/^lenet5: /lenet5 /p; s/^\[  PASSED  \] //p' "$log" | paste -sd ';'), $((SECONDS - start)) s"
}

# A core without AES: no warning, and NEON all the same.
without_aes() {
  local text
  text=$(qemu-aarch64 -cpu cortex-a72 -E LD_PRELOAD="$folder/libsitu_no_aes.so" "$folder/situ" devices --quick 2>&1)
  if [[ $text == *WARNING* || $text != *"(NEON)"* ]]; then
    printf '%s\n' "$text"
    echo "run_qemu: a core without AES must use NEON and say nothing" >&2
    return 1
  fi
  echo "without AES: NEON, no warning"
}

folder=$(readlink -f "$folder")
without_aes
status=0
for machine in "$@"; do
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || status=1; done
  run_machine "$machine" &
done
while (($(jobs -p | wc -l))); do wait -n || status=1; done
exit $status
