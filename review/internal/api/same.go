package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// sameInput reports whether sqlc is given the same configuration and files for both sides, and so generates the same
// package. Without sqlc the committed packages are compared, which may differ nevertheless.
func sameInput(ctx context.Context, base, head *project.Side) (bool, error) {
	if _, err := find(ctx); err != nil {
		return false, nil
	}
	before, err := digest(base)
	if err != nil {
		return false, err
	}
	after, err := digest(head)
	return err == nil && before == after, err
}

// digest is the hash of the configuration, and of all SQL files with their names.
func digest(side *project.Side) (sum [sha256.Size]byte, err error) {
	config, err := json.Marshal(side.SQLC)
	if err != nil {
		return sum, err
	}
	options, err := os.ReadFile(filepath.Join(side.Dir, side.SQLC.Config))
	if err != nil {
		return sum, err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q\n", config, options)
	err = filepath.WalkDir(side.Dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(file, ".sql") {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(side.Dir, file)
		fmt.Fprintf(hash, "%q %d\n", name, len(text))
		hash.Write(text)
		return err
	})
	return [sha256.Size]byte(hash.Sum(nil)), err
}
