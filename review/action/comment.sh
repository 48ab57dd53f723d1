#!/bin/sh
# Writes the report as a comment of the pull request PULL in REPOSITORY, or updates the comment of an earlier run. gh
# takes its token from GH_TOKEN. A token without the right to comment, as in pull requests from forks, is no failure.
set -eu

marker=$(head -n 1 "$REPORTS/schema-review.md")
case $marker in
'<!--'*'-->') ;;
*)
	echo "::error::the report does not begin with its marker" >&2
	exit 1
	;;
esac

# A comment has at most 65,536 characters.
body=$REPORTS/comment.md
if [ "$(wc -c <"$REPORTS/schema-review.md")" -lt 65000 ]; then
	cp "$REPORTS/schema-review.md" "$body"
else
	printf '%s\nThe report is too long for a comment: see the artifact schema-review of the run.\n' "$marker" >"$body"
fi

comments=repos/$REPOSITORY/issues/$PULL/comments
if ! ids=$(MARKER=$marker gh api --paginate "$comments" \
	--jq '.[] | select(.user.type == "Bot" and (.body | startswith(env.MARKER))) | .id'); then
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
