#!/bin/sh
# Runs the review, and writes schema-review.md and schema-review.sarif into REPORTS. A failed review fails the step; a
# verdict does not: the last step judges the output code.
set -eu

mkdir -p "$REPORTS"
# The arguments stay whole, whatever is in the variables. With = no value is read as a flag.
set -- --base="$BASE" --head=HEAD --dir="${DIR:-.}" --fail-on="${FAIL_ON:-blocking}" \
	--also="sarif=$REPORTS/schema-review.sarif"
if [ -n "${SEED:-}" ]; then set -- "$@" --seed="$SEED"; fi
if [ -n "${ROWS:-}" ]; then set -- "$@" --rows="$ROWS"; fi
if [ -n "${MIGRATIONS_DIR:-}" ]; then set -- "$@" --migrations-dir="$MIGRATIONS_DIR"; fi
if [ -n "${MIGRATIONS_TABLE:-}" ]; then set -- "$@" --migrations-table="$MIGRATIONS_TABLE"; fi
if [ -n "${MIGRATE_COMMAND:-}" ]; then set -- "$@" --migrate-command="$MIGRATE_COMMAND"; fi
if [ -n "${TOOL:-}" ]; then set -- "$@" --tool="$TOOL"; fi
if [ -n "${SQLC_CONFIG:-}" ]; then set -- "$@" --sqlc-config="$SQLC_CONFIG"; fi
case ${TRUST_SQL:-false} in
true) set -- "$@" --trust-sql ;;
false) ;;
*)
	echo "::error::the input trust-sql is neither true nor false" >&2
	exit 2
	;;
esac

# Messages of the review may repeat texts of the change. The runner must not read its commands from them.
stop=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "::stop-commands::$stop" >&2
code=0
"$BIN/schema-review" "$@" >"$REPORTS/schema-review.md" || code=$?
echo "::$stop::" >&2
case $code in
0 | 8 | 9 | 10) ;;
*)
	echo "::error::the schema review failed with exit code $code; its message is above" >&2
	exit "$code"
	;;
esac
echo "code=$code" >>"$GITHUB_OUTPUT"

# GitHub refuses a larger summary, and the runner's message does not say where the report is.
if [ "$(wc -c <"$REPORTS/schema-review.md")" -lt 1000000 ]; then
	cat "$REPORTS/schema-review.md" >>"$GITHUB_STEP_SUMMARY"
else
	echo "The report is too long for a summary: see the artifact $NAME." >>"$GITHUB_STEP_SUMMARY"
fi
