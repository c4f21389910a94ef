#!/bin/bash
# The first process of a node, inside its own network, mount, UTS and IPC namespaces:
#   node.sh HOSTNAME HOSTS KEPT_DIRECTORY...
# After it no file that can be written is shared with any other node: the temporary directories are
# the node's own, and everything else is read-only. Says "ready", then holds the namespaces.
set -euo pipefail
name=$1 hosts=$2
shift 2

mount --make-rprivate /
# What lies below a directory that is about to be covered is held open, and bound back.
kept=()
for path in "$@"; do
  case $path/ in /tmp/* | /var/tmp/* | /dev/shm/*) exec {fd}<"$path" && kept+=("$fd:$path") ;; esac
done
for directory in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$directory"; done
for pair in "${kept[@]}"; do
  mkdir -p "${pair#*:}"
  mount --no-canonicalize --bind "/proc/self/fd/${pair%%:*}" "${pair#*:}"
done
printf '%s\n' "$hosts" >/tmp/hosts
mount --bind /tmp/hosts /etc/hosts
mkdir /tmp/work /tmp/spool
while read -r _ target kind options _; do
  case $kind:$target in
    tmpfs:/tmp | tmpfs:/var/tmp | tmpfs:/dev/shm | tmpfs:/etc/hosts) ;;
    proc:* | sysfs:* | devtmpfs:* | devpts:* | mqueue:* | cgroup*) ;;
    # A path is written with \040 for a space. One that lies under another mount cannot be reached.
    *) mount -o "remount,bind,ro" "$(printf '%b' "$target")" 2>/dev/null ||
      [[ ,$options, == *,ro,* ]] || ! mountpoint -q "$(printf '%b' "$target")" ;;
  esac
done </proc/self/mounts

hostname "$name"
cd /tmp/work
echo ready
exec sleep infinity
