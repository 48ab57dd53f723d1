#!/bin/sh
# Fetches the base and as much history as the review needs, and prints the base's revision as an output. The output name
# tells the review's artifact, comment and category from those of other projects in the same repository.
#
# BASE is a branch of origin, or any revision. DIR is the project's folder. NAME is its name, or else the path of DIR,
# with dots for slashes.
set -eu

if [ "${GITHUB_EVENT_NAME:-}" = pull_request_target ]; then
	echo "::error::schema-review runs SQL of the change, so it refuses pull_request_target, which has secrets: use pull_request" >&2
	exit 1
fi
if ! cd "${DIR:-.}"; then
	echo "::error::the input dir is no folder" >&2
	exit 1
fi
if ! head=$(git rev-parse --verify --quiet 'HEAD^{commit}'); then
	echo "::error::$PWD is in no git repository with a commit: run actions/checkout first" >&2
	exit 1
fi

# An artifact's name has no slashes, and a comment in HTML no two hyphens. A folder whose name another one could have then
# gets a checksum.
given=${NAME:-}
if [ -z "$given" ]; then
	folder=$(git rev-parse --show-prefix)
	folder=${folder%/}
	given=$(printf %s "$folder" | tr / .)
fi
name=$(printf %s "$given" | tr -c 'A-Za-z0-9._' '[-*]' | tr -s -)
name=${name#-}
name=${name%-}
if [ -n "$given" ] && [ -z "$name" ]; then
	echo "::error::the project's name has no ASCII letter or digit: set the input name" >&2
	exit 1
fi
if [ -z "${NAME:-}" ] && { [ "$name" != "$given" ] || [ "$folder" != "${folder#*.}" ]; }; then
	name=$name-$(printf %s "$folder" | cksum | cut -d ' ' -f 1)
fi
name=schema-review${name:+-$name}
# The comment of an earlier run is changed even if this step fails below.
echo "name=$name" >>"$GITHUB_OUTPUT"

if [ -z "${BASE:-}" ]; then
	echo "::error::no base: run the action for a pull request, or set its input base" >&2
	exit 1
fi
case $BASE in
-* | *[[:space:][:cntrl:]]*) # git would take the first for an option, and the runner the others for another output
	echo "::error::the input base is neither a branch nor a revision" >&2
	exit 1
	;;
esac
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
