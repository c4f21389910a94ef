#!/bin/bash
# Launch agent in place of ssh: agent.sh [OPTIONS OF SSH] HOST COMMAND...
# HOST is an address or name in /tmp/nodes. The command starts on that node with no more of an
# environment than a real ssh gives it, in a shell, in the home directory.
while [[ ${1-} == -* ]]; do
  case $1 in -b | -c | -D | -E | -e | -F | -I | -i | -J | -L | -l | -m | -O | -o | -p | -Q | -R | -S | -W | -w) shift 2 ;; *) shift ;; esac
done
host=${1#*@}
shift
while read -r address name keeper; do
  [[ $host == "$address" || $host == "$name" ]] || continue
  # The tests find what a job has started by this one variable more.
  nsenter -t "$keeper" -n -m -u -i --time="/proc/$keeper/ns/time_for_children" env -i -C "$HOME" HOME="$HOME" USER="${USER:-root}" \
    SHELL=/bin/bash PATH=/usr/local/bin:/usr/bin:/bin ${TESTS_JOB:+TESTS_JOB="$TESTS_JOB"} \
    /bin/bash -c "$*"
  code=$?
  # A node that dies takes the command with it, and ssh, on this node, says that it has lost it.
  ((code > 128)) && echo "Connection to $host closed." >&2 && exit 255
  exit "$code"
done </tmp/nodes
echo "ssh: Could not resolve hostname $host: Name or service not known" >&2
exit 255
