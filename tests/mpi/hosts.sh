#!/bin/sh
# motet train under mpirun on two hosts: network namespaces of this machine, joined by a pair of virtual interfaces. The
# losses are those of two ranks on one host. Skipped where namespaces may not be made.
set -eu
. "$(dirname "$0")/lib.sh"
# MPICH's transports find this machine's shared memory behind the namespaces: no test of two hosts.
if ldd "$MOTET" | grep -q mpich; then echo "skipped: under Open MPI alone"; exit 77; fi
first="motet-a-$$" second="motet-b-$$"
mine=10.213.77.1 other=10.213.77.2
ip netns add "$first" 2>/dev/null && ip netns add "$second" 2>/dev/null ||
  { ip netns del "$first" 2>/dev/null || true; echo "skipped: this machine lets nobody make network namespaces"; exit 77; }
trap 'ip netns del "$first"; ip netns del "$second"; rm -rf "$work"' EXIT
ip link add motet0 netns "$first" type veth peer name motet0 netns "$second" 2>"$out" ||
  { echo "skipped: no pair of virtual interfaces: $(cat "$out")"; exit 77; }
ip -n "$first" addr add "$mine/24" dev motet0
ip -n "$second" addr add "$other/24" dev motet0
for space in "$first" "$second"; do ip -n "$space" link set lo up; done
ip -n "$first" link set motet0 up
ip -n "$second" link set motet0 up

# What a launcher starts remote commands with: host, then the command.
cat >"$work/remote" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in $mine) space=$first ;; $other) space=$second ;; *) echo "no host \$1" >&2; exit 1 ;; esac
shift
exec ip netns exec "\$space" sh -c "\$*"
END
chmod +x "$work/remote"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
set -- mpirun.openmpi -q --bind-to none -n 2 --host "$mine,$other" --mca plm_rsh_agent "$work/remote" \
  --mca oob_tcp_if_include 10.213.77.0/24 --mca btl_tcp_if_include 10.213.77.0/24

# Real messages: what goes over the interface is counted.
sent() { ip netns exec "$first" cat "/sys/class/net/motet0/statistics/tx_bytes"; }
before=$(sent)
ip netns exec "$first" "$@" "$MOTET" train train/job.yaml output_dir="$work/two" train.steps=3 train.resume=never \
  >"$out" 2>&1 || fail "two hosts: $(cat "$out")"
[ $(($(sent) - before)) -gt 100000 ] || fail "only $(($(sent) - before)) bytes between the hosts"
expect 0 train train/job.yaml output_dir="$work/one" train.steps=3
[ "$(losses "two")" = "$(losses "one")" ] || fail "two hosts: $(losses "two"), one: $(losses "one")"
[ "$(losses "one" | wc -w)" -eq 3 ] || fail "losses: $(losses "one")"
for file in "$work"/one/checkpoints/step-3/*.safetensors; do
  cmp "$file" "$work/two/checkpoints/step-3/$(basename "$file")" || fail "other weights: $(basename "$file")"
done

# A rank killed on the other host ends all of them, at once and not with success.
(
  for _ in $(seq 100); do [ -s "$work/killed/metrics.jsonl" ] && break; sleep 0.1; done
  pkill -KILL -n -f "output_dir=$work/killed"
) &
begin=$(date +%s)
code=0
ip netns exec "$first" timeout 60 "$@" "$MOTET" train train/job.yaml output_dir="$work/killed" train.steps=100000 \
  train.save_every=0 >"$out" 2>&1 || code=$?
[ "$code" -ne 0 ] && [ "$code" -ne 124 ] || fail "a killed rank: exit code $code: $(tail -n 3 "$out")"
[ $(($(date +%s) - begin)) -lt 30 ] || fail "a killed rank was noticed after $(($(date +%s) - begin)) s"
