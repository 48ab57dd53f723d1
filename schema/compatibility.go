package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A migration declares from which version of this library on the database may be used once it is applied; the
// function ffx_usable_from tells what the newest one declared. So a version runs on beside the next one until a
// migration says that it cannot. The migration that made the function has the rules.

// readDeclaration fills in which versions the database is for.
func (s *State) readDeclaration(ctx context.Context, db Querier) error {
	sql := "SELECT coalesce(nullif(" + pgx.Identifier{s.Schema, "ffx_usable_from"}.Sanitize() + "(), ''), 'none')"
	if err := db.QueryRow(ctx, sql).Scan(&s.UsableFrom); err != nil {
		return classify("read which versions it is for", err)
	}
	return nil
}

// newer tells whether a newer version of this library has migrated the database.
func (s *State) newer() bool { return s.Version > Version }

// newerRefusal returns why this build cannot work on what newer ones made, or nil.
func (s *State) newerRefusal() error {
	switch {
	case s.UsableFrom != "" && (!isVersion(s.UsableFrom) || s.UsableFrom > Version):
		return s.refuse(ErrTooNew, fmt.Sprintf("its version is %s, for builds that know %s, and this one knows %s", s.Version, s.UsableFrom, Version))
	case s.newer() && s.UsableFrom == "":
		return s.refuse(ErrTooNew, fmt.Sprintf("its version is %s, this build knows %s", s.Version, Version))
	case s.newer() && len(s.pending()) > 0:
		return s.refuse(ErrTooNew, fmt.Sprintf("its version is %s, and it lacks %s", s.Version, strings.Join(s.pending(), ", ")))
	}
	return nil
}

// isVersion tells whether text can be compared with [Version].
func isVersion(text string) bool {
	return len(text) == len(Version) && strings.Trim(text, "0123456789") == ""
}
