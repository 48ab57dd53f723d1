#!/bin/sh
# Installs schema-review into BIN: VERSION, or without one the source that the action came with.
set -eu

# The parser of SQL is WebAssembly. A C compiler would also compile its form in C, for minutes.
export CGO_ENABLED="${CGO_ENABLED:-0}"

mkdir -p "$BIN"
if [ -n "${VERSION:-}" ]; then
	cd "$BIN" # outside of every module
	GOWORK=off GOFLAGS=-trimpath GOBIN=$BIN go install "github.com/flowfabric/flowfabric-go/review/cmd/schema-review@$VERSION"
else
	cd "$ACTION_PATH/../.."
	GOWORK=$PWD/go.work GOFLAGS=-trimpath go build -o "$BIN/schema-review" ./review/cmd/schema-review
fi
"$BIN/schema-review" --version >&2
