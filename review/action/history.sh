#!/bin/sh
# Fetches the base and as much history as the review needs, and prints the base's revision as an output.
#
# BASE is a branch of origin, or any revision. The working folder is the repository.
set -eu

if [ "${GITHUB_EVENT_NAME:-}" = pull_request_target ]; then
	echo "::error::schema-review runs SQL of the change, so it refuses pull_request_target, which has secrets: use pull_request" >&2
	exit 1
fi
if [ -z "${BASE:-}" ]; then
	echo "::error::no base: run the action for a pull request, or set its input base" >&2
	exit 1
fi
if ! head=$(git rev-parse --verify --quiet 'HEAD^{commit}'); then
	echo "::error::$PWD is no git repository with a commit: run actions/checkout first" >&2
	exit 1
fi

BASE=${BASE#origin/}

fetch() { git fetch --quiet --no-tags "$@"; }

if git ls-remote --exit-code --quiet origin "refs/heads/$BASE" >/dev/null; then
	refspec="+refs/heads/$BASE:refs/remotes/origin/$BASE"
	base="refs/remotes/origin/$BASE"
	if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
		fetch --depth=1 origin "$refspec"
	else
		fetch origin "$refspec"
	fi
else
	refspec=$BASE
	base=$BASE
fi

for deeper in --deepen=100 --unshallow; do
	if git merge-base "$base" "$head" >/dev/null 2>&1; then
		break
	fi
	if [ "$(git rev-parse --is-shallow-repository)" = false ]; then
		break
	fi
	echo "fetching more history ($deeper)" >&2
	fetch "$deeper" origin "$head" "$refspec"
done
if ! git merge-base "$base" "$head" >/dev/null; then
	echo "::error::the change and $BASE have no common commit: check the name, or use actions/checkout with fetch-depth: 0" >&2
	exit 1
fi
echo "base=$base" >>"$GITHUB_OUTPUT"
