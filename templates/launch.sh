#!/usr/bin/env bash
# Runs one side agent in its tmux window. Three kinds of process, all from this file:
#   (no argument)  the supervisor, the window's own process. It only ever waits with `wait`, so that HUP, TERM and INT
#                  are handled at once whatever the client does, and it alone decides what the exit marker says.
#   job NAME       the job shell: runs NAME in the terminal's foreground, gives a shell on Ctrl+Z, brings NAME back on fg.
#   start, client, shell   become what they are named after. Nothing that they source can reach the other two.
# Every variable is named sa_*, because assigning to an inherited exported name would change the client's environment.
set +e +u +x +C
unset "${!sa_@}" 2>/dev/null
umask 077
#@constants@
readonly sa_stop=$sa_runtime/launcher.stop sa_exports=$sa_runtime/launcher.env sa_group_file=$sa_runtime/launcher.group
case $0 in /*) sa_self=$0 ;; *) sa_self=$PWD/$0 ;; esac

sa_timestamp() {
  if ((BASH_VERSINFO[0] >= 5)); then
    sa_now=$EPOCHREALTIME
    sa_fraction=${sa_now#*[.,]}
    TZ=UTC0 printf -v sa_now '%(%Y-%m-%dT%H:%M:%S)T' "${sa_now%[.,]*}"
    sa_now=$sa_now.${sa_fraction:0:3}Z
  else
    sa_now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  fi
}

# sa_journal TYPE [PID]
sa_journal() {
  sa_timestamp
  printf '{"type":"%s"%s,"at":"%s"}\n' "$1" "${2:+,\"pid\":$2}" "$sa_now" >> "$sa_runtime/events.jsonl"
}

# sa_mark CODE PHASE [SIGNAL] [ERROR as a JSON string]
sa_mark() {
  sa_timestamp
  sa_temp=$sa_runtime/.exit.json.$$.tmp
  if printf '{"exitCode":%d,"finishedAt":"%s","phase":"%s"%s%s}\n' "$1" "$sa_now" "$2" \
    "${3:+,\"signal\":\"$3\"}" "${4:+,\"error\":$4}" > "$sa_temp" && mv -f "$sa_temp" "$sa_runtime/exit.json"; then
    return 0
  fi
  rm -f "$sa_temp"
  printf 'side-agents: the end of this agent could not be recorded; it will be shown as crashed.\r\n' >&2
}

# The name of the signal behind a shell status such as 137; nothing for any other status.
sa_signal_name() {
  ((${1:-0} > 128 && $1 < 160)) && kill -l "$1" 2>/dev/null
}

sa_running() {
  kill -0 "$1" 2>/dev/null || return 1
  if [ -r "/proc/$1/stat" ]; then
    IFS= read -r -d '' sa_state < "/proc/$1/stat"
    sa_state=${sa_state##*) }
  else
    sa_state=$(ps -o stat= -p "$1" 2>/dev/null)
  fi
  case $sa_state in '' | [ZX]*) return 1 ;; esac
}

# Prints the children of a process and theirs.
sa_below() {
  local sa_kid sa_kids sa_list
  if [ -r "/proc/$1/task/$1/children" ]; then
    for sa_list in "/proc/$1/task/"*/children; do
      sa_kids=
      read -r sa_kids < "$sa_list"
      for sa_kid in $sa_kids; do printf '%s ' "$sa_kid" && sa_below "$sa_kid"; done
    done 2>/dev/null
  else
    ps -A -o ppid= -o pid= 2>/dev/null | while read -r sa_list sa_kid; do
      [ "$sa_list" = "$1" ] && printf '%s ' "$sa_kid" && sa_below "$sa_kid"
    done
  fi
}

# Sets sa_left to what still runs of the process $1, of everything below it, and of what was ever seen below it.
sa_look() {
  sa_left=
  for sa_pid in $sa_seen $(sa_below "$1"); do
    case " $sa_left " in *" $sa_pid "*) continue ;; esac
    sa_running "$sa_pid" && sa_left="$sa_left $sa_pid"
  done
  sa_seen=$sa_left
  [ -n "$sa_left" ] || sa_running "$1"
}

# Ends everything below the process $1: the signal $2, then TERM, then KILL; $1 itself ends by itself after that.
sa_end_below() {
  sa_seen=
  for sa_stage in "$2:20" TERM:60 KILL:40; do
    [ "$sa_stage" = TERM:20 ] && continue
    sa_look "$1" || return 0
    for ((sa_try = 0; sa_try < ${sa_stage#*:}; sa_try++)); do
      if [ -n "$sa_left" ] && { ((sa_try == 0)) || [ "${sa_stage%:*}" = KILL ]; }; then
        # shellcheck disable=SC2086  # a list of process ids
        kill -s "${sa_stage%:*}" $sa_left 2>/dev/null; kill -s CONT $sa_left 2>/dev/null
      fi
      if ((sa_try < 5)); then sleep 0.01; else sleep 0.05; fi
      sa_look "$1" || return 0
    done
  done
  kill -s KILL "$1" 2>/dev/null
}

# The file comes first: a job that is being born meanwhile finds it and does not begin.
sa_on_signal() {
  trap '' HUP INT QUIT TERM
  sa_signal=$1
  : > "$sa_stop"
  [ -n "$!" ] && sa_end_below "$!" "$1"
}

sa_scrub() {
  unset "${!PI_SIDE_@}" "${!SIDE_AGENTS_@}" "${!PI_SESSION_@}" "${!AGENTFORUM_@}"
  unset PI_CODING_AGENT AI_AGENT CLAUDECODE CLAUDE_CODE_SESSION_ID CLAUDE_CODE_ENTRYPOINT CLAUDE_PROJECT_DIR
  unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_PREFIX GIT_COMMON_DIR GIT_OBJECT_DIRECTORY GIT_NAMESPACE
  unset GIT_ALTERNATE_OBJECT_DIRECTORIES OLDPWD
} 2>/dev/null

# Typed CJK and tmux output suffer in a C locale; other categories stay as they were.
sa_locale() {
  case ${LC_ALL:-${LC_CTYPE:-$LANG}} in *[Uu][Tt][Ff]8* | *[Uu][Tt][Ff]-8*) return ;; esac
  [ -n "$LC_ALL" ] && export LANG="$LC_ALL"
  unset LC_ALL
  case $OSTYPE in darwin*) export LC_CTYPE=UTF-8 ;; *) export LC_CTYPE=C.UTF-8 ;; esac
} 2>/dev/null

sa_coordinate() {
  for sa_pair in "${sa_coordination[@]}"; do export "${sa_pair?}"; done
}

# Sets sa_problem and sa_problem_json when this is not the worktree of this agent on its branch.
sa_verify() {
  sa_problem= sa_problem_json=
  if ! cd -- "$sa_worktree"; then
    sa_problem="The worktree $sa_worktree is not there." sa_problem_json=$sa_json_missing
  elif ! sa_git=$(git rev-parse --show-toplevel --symbolic-full-name HEAD); then
    sa_problem="git does not know $sa_worktree as a worktree." sa_problem_json=$sa_json_unknown
  elif ! [ "${sa_git%$'\n'*}" -ef . ]; then
    sa_problem="$sa_worktree is not the top of a worktree; git says ${sa_git%$'\n'*}." sa_problem_json=$sa_json_toplevel
  elif [ "${sa_git##*$'\n'}" != "refs/heads/$sa_branch" ]; then
    sa_problem="$sa_worktree is on ${sa_git##*$'\n'}, expected the branch $sa_branch." sa_problem_json=$sa_json_branch
  fi
  [ -z "$sa_problem" ]
}

# Runs a job shell and waits for it: sets sa_code. It has this process group, so that the terminal comes back here.
sa_supervise() {
  (trap - HUP INT QUIT TERM && exec "$BASH" "$sa_self" job "$1") <&0 &
  wait "$!"
  sa_code=$?
  sa_group=
  { [ "$1" = client ] || ((sa_code != 0)); } && read -r sa_group 2>/dev/null < "$sa_group_file"
  # What the job left in its process group is hung up on, as by a terminal that closes; after a crash it is ended.
  if ((sa_code > 128)); then sa_signal_group TERM; else sa_signal_group HUP; fi
}

sa_signal_group() {
  [ -n "$sa_group" ] && kill -s "$1" -- "-$sa_group" && kill -s CONT -- "-$sa_group"
} 2>/dev/null

# After the marker, so that nobody waits for it: the rest of a crashed job gets a second, then KILL.
sa_sweep() {
  ((sa_code > 128)) || return
  for ((sa_try = 0; sa_try < 20; sa_try++)); do
    sa_signal_group 0 || return
    sleep 0.05
  done
  sa_signal_group KILL
}

# Records how the phase $1 ended; true only when the client itself chose to exit 0 and its terminal still lives.
sa_record() {
  [ -n "$sa_terminal" ] && ! [ -t 0 ] && sa_signal=${sa_signal:-HUP}
  if [ -n "$sa_signal" ]; then
    sa_code=$((128 + $(kill -l "$sa_signal")))
    sa_how="was ended by SIG$sa_signal"
    sa_mark "$sa_code" "$1" "$sa_signal"
  elif ((sa_code != 0)); then
    sa_name=$(sa_signal_name "$sa_code")
    sa_how="ended with exit code $sa_code${sa_name:+ (SIG$sa_name)}"
    sa_mark "$sa_code" "$1" "$sa_name"
  else
    sa_mark 0 "$1"
    return 0
  fi
  sa_sweep
  return 1
}

# What was typed or pasted for the client must neither close the window nor reach anything else.
sa_drain() {
  sa_pause=0.05
  ((BASH_VERSINFO[0] >= 4)) || sa_pause=1
  while sa_typed= && IFS= read -r -s -d '' -n 4096 -t "$sa_pause" sa_typed || [ -n "$sa_typed" ]; do :; done
} 2>/dev/null

# sa_close POLICY MESSAGE: says what happened, waits as the policy asks, and lets the pane end.
sa_close() {
  trap 'exit 0' HUP INT TERM
  trap '' QUIT TSTP
  rm -f "$sa_exports" "$sa_group_file"
  [ -n "$sa_terminal" ] && sa_cook
  # Leave the alternate screen and every input mode that a client which died may have left on. Leaving a screen twice would
  # put the cursor into the middle of what the client has left on the other one.
  if [ -z "$TMUX_PANE" ] || [ "$(tmux display-message -p -t "$TMUX_PANE" '#{alternate_on}' < /dev/null 2> /dev/null)" != 0 ]; then
    printf '\033[?1049l'
  fi
  printf '\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[?1l\033>\033[?25h\033[0m\r\n%s\r\n' "$2"
  if [ -n "$sa_terminal" ] && [ "$1" != close ]; then
    sa_drain
    if [ "$1" = keep ]; then
      printf 'This window stays; close it yourself (tmux kill-window).\r\n'
      while IFS= read -r -s -n 1 -d '' _; do :; done
    else
      printf 'Press any key to close this window.\r\n'
      IFS= read -r -s -n 1 -d '' _
      sa_drain
    fi
  fi
  trap '' HUP INT TERM
  # With remain-on-exit the pane would stay. Only a pane whose process this is may be killed.
  [ -n "$TMUX" ] && [ -n "$TMUX_PANE" ] &&
    tmux if-shell -F -t "$TMUX_PANE" "#{==:#{pane_pid},$$}" "kill-pane -t $TMUX_PANE" < /dev/null > /dev/null 2>&1
  exit "$sa_code"
}

sa_main() {
  sa_signal= sa_code=70 sa_terminal=
  trap 'sa_on_signal HUP' HUP
  trap 'sa_on_signal INT' INT
  trap 'sa_on_signal QUIT' QUIT
  trap 'sa_on_signal TERM' TERM
  sa_journal launcher $$
  [ -t 0 ] && sa_terminal=yes
  sa_scrub
  sa_locale
  sa_coordinate
  if ! sa_verify && [ -z "$sa_signal" ]; then
    sa_mark 70 launcher '' "$sa_problem_json"
    sa_close "$sa_on_failure" "side-agents: $sa_problem The agent was not started and nothing was changed."
  fi
  sa_phase=launcher
  if [ -z "$sa_signal" ] && [ -f "$sa_start_script" ] && [ -x "$sa_start_script" ]; then
    sa_phase=start-script
    sa_supervise start
    if [ -n "$sa_signal" ] || ((sa_code != 0)); then
      sa_record "$sa_phase"
      sa_close "$sa_on_failure" "side-agents: the start script of $sa_agent $sa_how; the agent was not started."
    fi
    [ -e "$sa_exports" ] || printf 'side-agents: the start script ended without handing over its exports (exec?).\r\n'
  fi
  if [ -z "$sa_signal" ]; then
    sa_phase=client
    sa_supervise client
  fi
  sa_record "$sa_phase" && sa_close "$sa_on_success" "side-agents: $sa_agent finished."
  sa_close "$sa_on_failure" "side-agents: $sa_agent $sa_how."
}

sa_job() {
  # bash reports a job that died by a signal on its terminal, unless it has a trap for that signal. Without one for INT
  # it dies of the INT of its job too, which says the same.
  trap : HUP QUIT ILL TRAP ABRT FPE KILL USR1 SEGV USR2 PIPE ALRM TERM BUS SYS XCPU XFSZ VTALRM PROF
  trap 'kill -0 "$PPID" 2>/dev/null || sa_mark 137 client KILL "\"the launcher was killed\""' EXIT
  set -m
  # A fork saves a start of bash, but only from bash 4 on does it know its own process id.
  if [ "$1" = client ] && [ -n "$BASHPID" ]; then (sa_client); else "$BASH" "$sa_self" "$1"; fi
  sa_code=$?
  sa_while_stopped
  exit "$sa_code"
}

# Not a loop, because bash leaves every loop in which a job is stopped. A job that reads the terminal before it is in
# the foreground stops for a moment; that is no Ctrl+Z.
sa_while_stopped() {
  sa_pid=$(jobs -sp %1 2>/dev/null)
  [ -n "$sa_pid" ] && sa_stopped "$sa_pid" || return
  case $(sa_signal_name "$sa_code") in TTIN | TTOU) ;; *) sa_suspend ;; esac
  if sa_running "$sa_pid"; then
    sa_stopped "$sa_pid" || kill -s CONT -- "-$sa_pid" # continued by someone else, maybe not all of it
    fg %1 > /dev/null
    sa_code=$?
  else
    wait "$sa_pid" 2>/dev/null
    sa_code=$?
    ((sa_code != 127)) || sa_code=137 # bash forgot how it ended; what is stopped can only be killed
  fi
  sa_while_stopped
}

# The terminal as tmux makes it, whatever the job left.
sa_cook() {
  stty sane iutf8 2>/dev/null || stty sane 2>/dev/null
}

sa_stopped() {
  sa_running "$1" && case $sa_state in T*) return 0 ;; esac
  return 1
}

# Ctrl+Z: a shell in the worktree until it ends; a second shell is never left behind.
sa_suspend() {
  [ -e "$sa_stop" ] && return
  sa_client_tty=$(stty -g 2>/dev/null)
  sa_cook
  printf '\033[?1000l\033[?1002l\033[?1003l\033[?1006l\033[?2004l\033[?25h\033[0m\r\n'
  sa_journal suspended
  "$BASH" "$sa_self" shell
  for sa_other in $(jobs -sp); do [ "$sa_other" = "$sa_pid" ] || kill -s KILL "$sa_other"; done 2>/dev/null
  stty "$sa_client_tty" 2>/dev/null
  sa_journal continued
}

# Written by the start script's process; the last line proves that the file is whole.
sa_hand_over() {
  builtin set +e +u +x +C
  (builtin set -o posix && builtin export -p && builtin printf '%s' 'sa_whole=yes') >| "$sa_exports"
}

sa_start() {
  [ -e "$sa_stop" ] && exit 143
  printf '%s\n' "$$" > "$sa_group_file"
  IFS= read -r sa_line < "$sa_start_script"
  case $sa_line in
    '#!'*[/\ ]sh | '#!'*[/\ ]bash | '#!'*[/\ ]sh\ * | '#!'*[/\ ]bash\ * | '#!'*dash) ;;
    '#!'*) exec "$sa_start_script" "$sa_parent_repo" "$sa_worktree" "$sa_agent" ;;
  esac
  trap sa_hand_over EXIT
  readonly sa_depth=$BASH_SUBSHELL
  # A script that sets its own EXIT trap and then calls exit still hands over what it exported.
  exit() {
    local sa_status=${1:-$?}
    [ "$BASH_SUBSHELL" = "$sa_depth" ] && sa_hand_over
    builtin exit "$sa_status"
  }
  # shellcheck source=/dev/null
  . "$sa_start_script" "$sa_parent_repo" "$sa_worktree" "$sa_agent"
  exit "$?"
}

# Takes over the environment as the start script left it, unset variables included, except what identifies the agent.
sa_import() {
  sa_kept_tmux=$TMUX sa_kept_pane=$TMUX_PANE
  if [ -f "$sa_exports" ]; then
    sa_text=$(< "$sa_exports")
    if [ "${sa_text##*$'\n'}" = sa_whole=yes ]; then
      for sa_name in $(compgen -e); do unset "$sa_name"; done 2>/dev/null
      eval "$sa_text"
    fi
  fi
  export TMUX="$sa_kept_tmux" TMUX_PANE="$sa_kept_pane"
  sa_coordinate
  for sa_pair in "${sa_client_env[@]}"; do export "${sa_pair?}"; done
  cd -- "$sa_worktree" || exit 70
  unset OLDPWD
}

sa_client() {
  [ -e "$sa_stop" ] && exit 143
  sa_import
  printf '%s\n' "${BASHPID:-$$}" > "$sa_group_file"
  sa_journal client "${BASHPID:-$$}"
  [ -n "$sa_stdin" ] && exec < "$sa_stdin"
  exec -- "${sa_argv[@]}"
}

sa_shell() {
  [ -e "$sa_stop" ] && exit 143
  sa_import
  printf '%s\n' "$sa_suspended_rc" >| "$sa_runtime/suspended.bashrc"
  exec "$BASH" --rcfile "$sa_runtime/suspended.bashrc" -i
}

case ${1-} in
  '') sa_main ;;
  job) sa_job "$2" ;;
  start) sa_start ;;
  client) sa_client ;;
  shell) sa_shell ;;
esac
exit 70
