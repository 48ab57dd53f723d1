package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// A migration declares the oldest version of the library for a database with the migration applied. The function
// ffx_usable_from returns the newest declaration. So an old version keeps running beside the next one until a migration
// forbids the old one. The migration with the function has the rules.

// readDeclaration fills in the oldest version allowed to use the database.
func (s *State) readDeclaration(ctx context.Context, db Querier) error {
	sql := "SELECT coalesce(nullif(" + pgx.Identifier{s.Schema, "ffx_usable_from"}.Sanitize() + "(), ''), 'none')"
	if err := db.QueryRow(ctx, sql).Scan(&s.UsableFrom); err != nil {
		return classify("read which versions it is for", err)
	}
	return nil
}

// newer reports whether a newer version of the library has migrated the database.
func (s *State) newer() bool { return s.Version > Version }

// newerRefusal returns an error if this build cannot work on a database migrated by a newer one.
func (s *State) newerRefusal() error {
	switch {
	case s.UsableFrom != "" && (!isVersion(s.UsableFrom) || s.UsableFrom > Version):
		return s.refuse(fferr.ErrTooNew, fmt.Sprintf("its version is %s, which needs a build that knows %s; this one knows %s", s.Version, s.UsableFrom, Version))
	case s.newer() && s.UsableFrom == "":
		return s.refuse(fferr.ErrTooNew, fmt.Sprintf("its version is %s, this build knows %s", s.Version, Version))
	case s.newer() && len(s.pending()) > 0:
		return s.refuse(fferr.ErrTooNew, fmt.Sprintf("its version is %s, and it lacks %s", s.Version, strings.Join(s.pending(), ", ")))
	}
	return nil
}

// isVersion reports whether text can be compared with [Version].
func isVersion(text string) bool {
	return len(text) == len(Version) && strings.Trim(text, "0123456789") == ""
}
