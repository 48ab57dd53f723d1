#!/bin/sh
# Runs the review, and writes schema-review.md and schema-review.sarif into REPORTS. A failed review fails the step; a
# verdict does not: the last step judges the output code.
set -eu

mkdir -p "$REPORTS"
set -- --base "$BASE" --head HEAD --dir "${DIR:-.}" --fail-on "${FAIL_ON:-blocking}" \
	--also "sarif=$REPORTS/schema-review.sarif"
if [ -n "${SEED:-}" ]; then set -- "$@" --seed "$SEED"; fi
if [ -n "${ROWS:-}" ]; then set -- "$@" --rows "$ROWS"; fi
if [ -n "${MIGRATIONS_DIR:-}" ]; then set -- "$@" --migrations-dir "$MIGRATIONS_DIR"; fi
if [ -n "${MIGRATIONS_TABLE:-}" ]; then set -- "$@" --migrations-table "$MIGRATIONS_TABLE"; fi
if [ -n "${TOOL:-}" ]; then set -- "$@" --tool "$TOOL"; fi
if [ -n "${SQLC_CONFIG:-}" ]; then set -- "$@" --sqlc-config "$SQLC_CONFIG"; fi

code=0
"$BIN/schema-review" "$@" >"$REPORTS/schema-review.md" || code=$?
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
	echo "The report is too long for a summary: see the artifact schema-review." >>"$GITHUB_STEP_SUMMARY"
fi
