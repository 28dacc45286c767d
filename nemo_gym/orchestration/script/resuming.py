"""How jobs go on after each other: what became of the one before, and queueing the next."""

from nemo_gym.orchestration.api import Resume
from nemo_gym.orchestration.values import duration_seconds

CHAIN, SUCCESSOR = ".gym_job_chain", ".gym_successor"
ACCUMULATED, RETRIES = ".gym_accumulated_walltime", ".gym_infra_retries"
BEGINS, ENDS = ".gym_begins", ".gym_ends"
"""What jobs note themselves, for clusters without accounts: `job epoch` and `job exit-code seconds`, a line each."""
CANCELLED = ".gym_cancelled"
RESUMABLE_EXIT = 75

_LIMIT = r"""    if [ "$spent" -ge @MAX_SECONDS@ ]; then
      gym_fail "Gave up after $spent s: max_walltime is @MAX_SECONDS@ s."
    fi
"""

_PROLOGUE = r"""gym_number() { [ -s "$1" ] && tail -n 1 "$1" || echo 0; }

gym_noted() { grep "^$2 " "$gym_dir/$1" 2>/dev/null | tail -n 1 | cut -d ' ' -f "$3"; }  # file, job, field

gym_ran() {  # job: the seconds it ran, by its own note, else by what it wrote last
  local seconds began wrote
  seconds="$(gym_noted @ENDS@ "$1" 3)"
  if [ -z "$seconds" ]; then
    began="$(gym_noted @BEGINS@ "$1" 2)"
    wrote="$(stat -c %Y "$gym_dir/logs/"*"-$1.log" 2>/dev/null | sort -n | tail -n 1)"
    seconds=$((${wrote:-0} - ${began:-${wrote:-0}}))
  fi
  echo $((seconds > 0 ? seconds : 0))
}

gym_look_up() {  # job: sets gym_state, gym_elapsed, gym_code, by accounts, the controller, or the job's own note
  local attempt
  for attempt in 1 2 3 4 5 6; do
    gym_state="" gym_elapsed="" gym_code=""
    IFS='|' read -r gym_state gym_elapsed gym_code \
      <<< "$(sacct -X -n -P -j "$1" -o State,ElapsedRaw,ExitCode 2>/dev/null | head -n 1)" || true
    if [ -z "$gym_state" ]; then
      read -r gym_state gym_code <<< "$(scontrol show job "$1" 2>/dev/null | tr -s ' ' '\n' \
        | awk -F= '$1 == "JobState" {state = $2} $1 == "ExitCode" {code = $2} END {print state, code}')" || true
    fi
    case "$gym_state" in
      ""|PENDING*|RUNNING*|COMPLETING*|SUSPENDED*) gym_state="" ;;
      *) break ;;
    esac
    [ "$attempt" -eq 6 ] || sleep "${GYM_SACCT_PAUSE_SECONDS:-10}"
  done
  if [ -z "$gym_state" ]; then
    gym_code="$(gym_noted @ENDS@ "$1" 2)"
    case "$gym_code" in "") ;; 0) gym_state=COMPLETED ;; *) gym_state=FAILED gym_code="$gym_code:0" ;; esac
  fi
  gym_elapsed="${gym_elapsed:-$(gym_ran "$1")}"
}

gym_go_on() {
  local previous="" spent retries
  [ ! -e "$gym_dir/@CANCELLED@" ] || exit 0
  if [ -s "$gym_dir/@CHAIN@" ]; then previous="$(tail -n 1 "$gym_dir/@CHAIN@")"; fi
  if [ "$previous" = "$SLURM_JOB_ID" ]; then
    gym_say "job $SLURM_JOB_ID was requeued"
    return
  fi
  if [ -n "$previous" ]; then
    gym_look_up "$previous"
    spent=$(($(gym_number "$gym_dir/@ACCUMULATED@") + gym_elapsed))
    echo "$spent" > "$gym_dir/@ACCUMULATED@"
    gym_say "job $previous before this one: ${gym_state:-unknown}, $spent s in all"
    case "$gym_state:$gym_code" in
      COMPLETED*|CANCELLED*) exit 0 ;;
      TIMEOUT*|PREEMPTED*|NODE_FAIL*|FAILED:@RESUMABLE@:*) ;;
      *)
        retries=$(($(gym_number "$gym_dir/@RETRIES@") + 1))
        echo "$retries" > "$gym_dir/@RETRIES@"
        if [ "$retries" -gt @MAX_RETRIES@ ]; then
          gym_fail "Gave up after @MAX_RETRIES@ retries: job $previous ended as ${gym_state:-nobody knows}."
        fi ;;
    esac
@LIMIT@  fi
  echo "$SLURM_JOB_ID" >> "$gym_dir/@CHAIN@"
  echo "$SLURM_JOB_ID $(date +%s)" >> "$gym_dir/@BEGINS@"
  if gym_next="$(sbatch --parsable --dependency="afternotok:$SLURM_JOB_ID" --kill-on-invalid-dep=yes "$gym_dir/job.sh")"
  then
    echo "${gym_next%%;*}" > "$gym_dir/@SUCCESSOR@"
  else
    gym_say "the job that would go on after this one could not be queued"
  fi
}

gym_go_on
"""


def prologue(resume: Resume | None) -> str:
    """Shell text; nothing where a job is not gone on with.

    A job that ended as COMPLETED or CANCELLED is not followed; one that ran out of time, was preempted, lost its node
    or stopped resumably is, within `max_walltime`; any other, and one whose end nobody knows, at most `max_retries`
    times.
    """
    if resume is None:
        return ""
    limited = _LIMIT.replace("@MAX_SECONDS@", str(duration_seconds(resume.max_walltime))) if resume.max_walltime else ""
    values = {
        "LIMIT": limited,
        "CHAIN": CHAIN,
        "SUCCESSOR": SUCCESSOR,
        "ACCUMULATED": ACCUMULATED,
        "RETRIES": RETRIES,
        "BEGINS": BEGINS,
        "ENDS": ENDS,
        "CANCELLED": CANCELLED,
        "RESUMABLE": str(RESUMABLE_EXIT),
        "MAX_RETRIES": str(resume.max_retries),
    }
    text = _PROLOGUE
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
