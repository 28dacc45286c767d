"""Shell functions that every job script begins with."""

FUNCTIONS = r"""gym_say() { printf '%s gym: %s\n' "$(date -u +%H:%M:%S)" "$*" >&2; }

gym_fail() {  # why
  printf '%s\n' "$1" > "$gym_dir/.gym_reason"
  gym_say "$1"
  exit 1
}

gym_signal() {  # signal, pid: a step's process group where it leads one
  kill "-$1" -- "-$2" 2>/dev/null || kill "-$1" "$2" 2>/dev/null || true
}

gym_gone() {  # seconds, pids...: wait until they have ended
  local until=$((SECONDS + $1)) pid
  shift
  for pid in "$@"; do
    while kill -0 "$pid" 2>/dev/null; do
      [ "$SECONDS" -lt "$until" ] || return 1
      sleep 0.2
    done
  done
}

gym_end() {  # seconds of grace, pids...
  local grace=$1 pid
  shift
  for pid in "$@"; do gym_signal TERM "$pid"; done
  gym_gone "$grace" "$@" || for pid in "$@"; do gym_signal KILL "$pid"; done
  for pid in "$@"; do kill -KILL -- "-$pid" 2>/dev/null || true; done
}

gym_steps=() gym_pids=() gym_logs=()
gym_driver=""

gym_watch() {  # name, pid, log
  gym_steps+=("$1") gym_pids+=("$2") gym_logs+=("$3")
  printf '%s\n' "$2" >> "$gym_dir/.gym_pids"
}

gym_check() {  # end the job at once when a service has ended, but not for a collector beside a driver
  local index code
  for index in "${!gym_pids[@]}"; do
    kill -0 "${gym_pids[$index]}" 2>/dev/null && continue
    code=0
    wait "${gym_pids[$index]}" || code=$?
    if [ "${gym_steps[$index]}" = otel ] && [ -n "$gym_driver" ]; then
      gym_say "the collector ended with exit code $code; the run goes on without it"
      unset "gym_steps[$index]" "gym_pids[$index]" "gym_logs[$index]"
      continue
    fi
    if [ -n "$gym_driver" ]; then gym_end 45 "$gym_driver"; fi
    printf '%s\n' "The last lines of ${gym_logs[$index]}:" >&2
    tail -n 40 "${gym_logs[$index]}" >&2 || true
    gym_fail "The service ${gym_steps[$index]} ended with exit code $code."
  done
}

gym_probe_http() {
  command -v curl >/dev/null || gym_fail "There is no curl on $(hostname), which the health of services is asked with."
  curl --silent --fail --max-time 5 --output /dev/null "$1"
}

gym_probe_port() { (exec 3<> "/dev/tcp/$1/$2") 2>/dev/null; }

gym_free() {  # name, node, port
  local until=$((SECONDS + ${GYM_FREE_PORT_SECONDS:-15}))
  while gym_probe_port "$2" "$3"; do
    if [ "$SECONDS" -ge "$until" ]; then
      gym_fail "Port $3 of $2, which $1 is to serve at, is taken: something else answers there. Give $1 another port."
    fi
    sleep 1
  done
}

gym_ready() {  # name, seconds, probe...
  local name=$1 limit=$2 until=$((SECONDS + $2))
  shift 2
  until "$@"; do
    gym_check
    if [ "$SECONDS" -ge "$until" ]; then
      gym_fail "The service $name was not ready within $limit s (${*:2}); its log is in $gym_dir/logs."
    fi
    sleep 1
  done
  gym_say "$name is ready"
}

gym_finish() {
  local code=$?
  trap - EXIT
  trap '' TERM INT
  if [ "${#gym_pids[@]}" -gt 0 ]; then gym_end 15 "${gym_pids[@]}"; fi
  printf '%s %s %s\n' "$gym_run" "$code" "$SECONDS" >> "$gym_dir/.gym_ends"
  exit "$code"
}

gym_stopped() {
  trap '' TERM INT
  gym_say "stopping"
  local code=143
  if [ -n "$gym_driver" ]; then
    gym_end 45 "$gym_driver"
    code=0
    wait "$gym_driver" || code=$?
  fi
  exit "$code"
}

trap gym_finish EXIT
trap gym_stopped TERM INT
"""
