#!/bin/sh
# Fails if CODE, the exit code of the review, is 9, or 10 unless ALLOW_UNREAD is true. Advice, code 8, is no failure.
set -eu

case ${CODE:-} in
0) ;;
8) echo "::notice::the schema review has advice; see the summary" ;;
9)
	echo "::error::the schema review has findings that block the change; see the summary" >&2
	exit 9
	;;
10)
	said="the schema review did not read a part of the project; see the top of the report"
	if [ "${ALLOW_UNREAD:-false}" = true ]; then
		echo "::warning::$said"
	else
		echo "::error::$said" >&2
		exit 10
	fi
	;;
*)
	echo "::error::the schema review ended without a verdict" >&2
	exit 1
	;;
esac
