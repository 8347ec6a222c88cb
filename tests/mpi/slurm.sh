#!/bin/sh
# motet train under Slurm: a controller and two nodes on this machine, the example's batch file. Losses are those of two
# ranks without Slurm; a run that is asked to stop saves and goes back into the queue. Skipped where Slurm is not
# installed or may not be started.
set -eu
batch=$(cd "$(dirname "$0")/../../examples/slurm" && pwd)/train.sbatch
. "$(dirname "$0")/lib.sh"
skip() { echo "skipped: $*"; exit 77; }
for program in munged slurmctld slurmd sbatch; do
  command -v "$program" >/dev/null || skip "$program is not installed"
done
[ "$(id -u)" -eq 0 ] || skip "nodes of one machine are started as root"

host=$(hostname -s)
export SLURM_CONF="$work/slurm.conf" MOTET
port=$((20000 + $$ % 20000))
chmod 755 "$work"
mkdir "$work/state" "$work/spool-one" "$work/spool-two" "$work/tmp-one" "$work/tmp-two"
dd if=/dev/urandom of="$work/munge.key" bs=1024 count=1 2>/dev/null
chmod 400 "$work/munge.key"
cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$work/munge.socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
TmpFS=$work/tmp-%n
SlurmctldPidFile=$work/controller.pid
SlurmdPidFile=$work/%n.pid
SlurmctldLogFile=$work/controller.log
SlurmdLogFile=$work/%n.log
SlurmctldPort=$port
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1
PartitionName=all Nodes=one,two Default=YES
END
stop() {
  for name in one two controller munge; do
    [ ! -s "$work/$name.pid" ] || kill "$(cat "$work/$name.pid")" 2>/dev/null || true
  done
  sleep 1
  rm -rf "$work"
}
trap stop EXIT
munged --force --socket="$work/munge.socket" --key-file="$work/munge.key" --pid-file="$work/munge.pid" \
  --log-file="$work/munge.log" --seed-file="$work/munge.seed" 2>"$out" || skip "munged: $(cat "$out")"
slurmctld -c || skip "slurmctld: $(tail -n 3 "$work/controller.log")"
slurmd -N one -c || skip "slurmd: $(tail -n 3 "$work/one.log")"
slurmd -N two -c || skip "slurmd: $(tail -n 3 "$work/two.log")"
for _ in $(seq 50); do
  [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
  sleep 0.2
done
[ "$(sinfo -h -t idle -o %D)" = 2 ] || skip "the nodes do not come up: $(sinfo)"

if ldd "$MOTET" | grep -q mpich; then MOTET_SLURM_MPI=pmi2; else MOTET_SLURM_MPI=pmix; fi
export MOTET_SLURM_MPI OMPI_MCA_btl_tcp_if_include=lo # both nodes are this machine
timeout 60 srun -N 2 -n 2 --mpi="$MOTET_SLURM_MPI" true >"$out" 2>&1 || skip "Slurm starts no tasks here: $(cat "$out")"
steps() { sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$1/metrics.jsonl"; }

sbatch -Q --wait -o "$work/batch.log" "$batch" train/job.yaml output_dir="$work/batch" train.steps=3 ||
  fail "the batch job: $(cat "$work/batch.log") $(tail -n 5 "$work/one.log")"
expect 0 train train/job.yaml output_dir="$work/plain" train.steps=3
[ "$(losses "batch")" = "$(losses "plain")" ] || fail "Slurm: $(losses "batch"), without: $(losses "plain")"
[ "$(steps "$work/batch" | wc -l)" -eq 3 ] || fail "steps: $(steps "$work/batch")"

# Asked to stop as before a time limit: the step is saved, the job is in the queue again.
job=$(sbatch --parsable -o "$work/stopped.log" "$batch" train/job.yaml output_dir="$work/stopped" train.steps=1000000)
for _ in $(seq 150); do
  [ -s "$work/stopped/metrics.jsonl" ] && break
  sleep 0.2
done
[ -s "$work/stopped/metrics.jsonl" ] || fail "no step: $(cat "$work/stopped.log")"
scancel --signal=USR1 "$job"
for _ in $(seq 150); do
  ls "$work"/stopped/checkpoints/step-*/trainer.json >/dev/null 2>&1 && break
  sleep 0.2
done
ls "$work"/stopped/checkpoints/step-*/trainer.json >/dev/null 2>&1 || fail "nothing saved: $(tail -n 5 "$work/stopped.log")"
for _ in $(seq 50); do
  [ "$(squeue -h -j "$job" -o %r)" = BeginTime ] && break
  sleep 0.2
done
[ "$(squeue -h -j "$job" -o %t)" = PD ] || fail "the job is not in the queue: $(squeue -j "$job")"
scancel "$job"
