#!/bin/sh
# Writes the report as a comment of the pull request, or updates the comment of an earlier run: see comment/main.go. The
# program is built here, because it also runs if the installation of schema-review failed.
set -eu

cd "$ACTION_PATH/../.."
GOWORK=$PWD/go.work GOFLAGS=-trimpath CGO_ENABLED=0 go build -o "$BIN/comment" ./review/action/comment
exec "$BIN/comment"
