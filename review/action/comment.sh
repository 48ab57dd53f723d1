#!/bin/sh
# Writes the report as a comment of the pull request PULL in REPOSITORY, or updates the comment of an earlier run. If the
# review failed, the comment says so instead of the earlier verdict. gh takes its token from GH_TOKEN. A token without the
# right to comment, as in pull requests from forks, is no failure.
set -eu

marker='<!-- schema-review -->' # the first line of each report
mkdir -p "$REPORTS"
report=$REPORTS/schema-review.md
body=$REPORTS/comment.md
if [ -z "${CODE:-}" ]; then
	printf '%s\nThe schema review failed: its message is in the log of the run.\n' "$marker" >"$body"
elif [ "$(wc -c <"$report")" -lt 65000 ]; then # a comment has at most 65,536 characters
	cp "$report" "$body"
else
	printf '%s\nThe report is too long for a comment: see the artifact schema-review of the run.\n' "$marker" >"$body"
fi

comments=repos/$REPOSITORY/issues/$PULL/comments
me=$(gh api user --jq .login 2>/dev/null) || me= # the workflow's own token has no user
if ! ids=$(MARKER=$marker ME=$me gh api --paginate "$comments" \
	--jq '.[] | select((.user.type == "Bot" or .user.login == env.ME) and (.body | startswith(env.MARKER))) | .id'); then
	echo "::warning::the comments cannot be read, so the report is in the summary only" >&2
	exit 0
fi
id=$(printf '%s\n' "$ids" | head -n 1)
if [ -n "$id" ]; then
	set -- --method PATCH "repos/$REPOSITORY/issues/comments/$id"
else
	set -- --method POST "$comments"
fi
if ! gh api --silent "$@" --field "body=@$body"; then
	echo "::warning::the token may not comment (pull-requests: write), so the report is in the summary only" >&2
fi
