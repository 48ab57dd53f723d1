package project

import (
	"context"
	"strings"
)

// Prefix returns the path of a folder in its git repository, with slashes. Empty: the folder is the repository's root.
func Prefix(ctx context.Context, dir string) (string, error) {
	out, err := git(ctx, dir, nil, "rev-parse", "--show-prefix")
	return strings.TrimRight(string(out), "/\n"), err
}
