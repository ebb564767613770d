#!/usr/bin/env bash
# The second step of action.yml: runs the command, and leaves its summary on the run's page, the
# report in $REPORT and the exit code in $GITHUB_OUTPUT. All that it is told stands in variables
# that action.yml sets, so that no input becomes part of a script.
set -uo pipefail

die() {
  echo "::error::shardproof: $*"
  printf '### Shardproof: not run\n\n    %s\n' "$*" >> "$GITHUB_STEP_SUMMARY"
  echo "exit-code=2" >> "$GITHUB_OUTPUT"
  exit 2
}

# Words as a shell splits them, with quotes, and nothing expanded or run.
split=$("$PYTHON" -c 'import os, shlex, sys
sys.stdout.write("\n".join(word.replace("\n", " ") for word in shlex.split(os.environ["ARGUMENTS"])))
' 2>&1) || die "the input 'run' cannot be split into words: ${split##*$'\n'}"
mapfile -t words <<< "$split"
[[ -n ${words[0]} ]] || die "the input 'run' is empty: expected a command such as verify or compare"
if [[ -n $(ls -A "$REPORT" 2>/dev/null) ]]; then
  die "the directory '$REPORT' of the input 'report' is not empty"
fi
mkdir -p "$REPORT" || die "the directory '$REPORT' of the input 'report' cannot be made"

# The command lies beside the Python that it was installed into, or is found as any other.
folder=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
command=$folder/shardproof
[[ -x $command ]] || command=shardproof

url=$REPORT_URL
if [[ -z $url && -n ${GITHUB_RUN_ID:-} ]]; then
  url=$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID#artifacts
fi
options=(--summary "$REPORT/summary.md")
case ${words[0]} in
  verify | replay | report) options+=(--report "$REPORT") ;;
  *) options+=(--json "$REPORT/result.json") ;;
esac
if [[ -n $url ]]; then options+=(--report-url "$url"); fi
if [[ -n $KNOWN ]]; then options+=(--known "$KNOWN"); fi
if [[ -n $BASELINE ]]; then options+=(--baseline "$BASELINE"); fi
if [[ -n $MIN_COMPARISONS ]]; then options+=(--min-comparisons "$MIN_COMPARISONS"); fi
# What stands behind -- is another program's, as of crashtest.
for at in "${!words[@]}"; do
  if [[ ${words[at]} == -- ]]; then break; fi
  at=$((at + 1))
done

code=0
"$command" "${words[@]:0:at}" "${options[@]}" "${words[@]:at}" 2> "$REPORT/stderr.txt" || code=$?
cat "$REPORT/stderr.txt" >&2
if [[ -s $REPORT/summary.md ]]; then
  cat "$REPORT/summary.md" >> "$GITHUB_STEP_SUMMARY"
else
  {
    printf '### Shardproof: exit code %s, without a verdict\n\n' "$code"
    tail -n 20 "$REPORT/stderr.txt" | sed 's/^/    /'
    printf '\n'
  } >> "$GITHUB_STEP_SUMMARY"
fi
{
  echo "exit-code=$code"
  echo "report=$REPORT"
} >> "$GITHUB_OUTPUT"
exit "$code"
