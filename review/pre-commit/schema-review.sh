#!/bin/sh
# Runs schema-review for pre-commit, built from the clone of this repository that pre-commit made of its revision. Advice,
# code 8, passes.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
if ! command -v go >/dev/null; then
	echo "schema-review is built when it runs, which needs Go: https://go.dev/dl" >&2
	exit 1
fi
# The parser of SQL is WebAssembly. A C compiler would also compile its form in C, for minutes. In a hook, the variables of git
# name the project's repository, not the clone.
(
	cd "$root"
	GOWORK=$root/go.work GOFLAGS=-trimpath CGO_ENABLED=0 go build -buildvcs=false -o bin/schema-review ./review/cmd/schema-review
)
code=0
"$root/bin/schema-review" "$@" || code=$?
if [ "$code" -eq 8 ]; then exit 0; fi
exit "$code"
