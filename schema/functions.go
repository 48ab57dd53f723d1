package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// Repair corrects the schema's functions after the schema was renamed, or restored under another name. Functions that set
// a search_path still name the old schema then, and creations fail; [Check] reports [ErrMoved].
//
// Repair changes all of them in one transaction, which locks no table, and returns them in Result.Applied. Safe to
// repeat.
//
// Errors: as [Migrate], and [fferr.ErrNotMigrated] or [ErrNotAdopted]. The role must own the functions.
func Repair[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return change(ctx, database, opts, func(ctx context.Context, s *session) (Result, error) {
		switch s.state.Origin {
		case OriginNone:
			return Result{}, s.state.refuse(fferr.ErrNotMigrated, "")
		case OriginReference, OriginConverting:
			return Result{}, s.state.notAdopted()
		}
		result := Result{From: s.state.Version, To: s.state.Version, Applied: s.state.moved}
		if len(s.state.moved) == 0 {
			return result, nil
		}
		if err := s.exec(ctx, s.state.moves()...); err != nil {
			return Result{}, classify("repair the functions", err)
		}
		s.log.InfoContext(ctx, "repaired", "schema", s.schema, "functions", s.state.moved)
		return result, nil
	})
}

// moves returns statements to repair the functions in moved.
func (s *State) moves() []string {
	statements := make([]string, len(s.moved))
	for i, function := range s.moved {
		statements[i] = "ALTER FUNCTION " + function + " SET search_path = " + pgx.Identifier{s.Schema}.Sanitize()
	}
	return statements
}

// readMoved fills in the functions of the schema whose search_path has the tables of another schema, or none.
func (s *State) readMoved(ctx context.Context, db Querier) error {
	var user string
	var homes []string
	err := db.QueryRow(ctx, `
		SELECT
			current_user::text,
			coalesce(array_agg(n.nspname::text), '{}')
		FROM pg_class AS c
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relname = 'ff_exec_core'`,
	).Scan(&user, &homes)
	if err != nil {
		return classify("read the schemas", err)
	}
	rows, err := db.Query(ctx, `
		SELECT
			format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
			substr(setting, length('search_path=') + 1)
		FROM pg_proc AS p
		JOIN pg_namespace AS n ON n.oid = p.pronamespace
		CROSS JOIN LATERAL unnest(p.proconfig) AS setting
		WHERE
			n.nspname = $1
			AND p.proname ~ '^ffx?_'
			AND setting LIKE 'search\_path=%'
		ORDER BY 1`,
		s.Schema)
	if err != nil {
		return classify("read the functions", err)
	}
	var function, path string
	_, err = pgx.ForEachRow(rows, []any{&function, &path}, func() error {
		for _, schema := range pathElements(path) {
			if schema == "$user" {
				schema = user
			}
			if slices.Contains(homes, schema) {
				if schema != s.Schema {
					break
				}
				return nil
			}
		}
		s.moved = append(s.moved, function)
		return nil
	})
	if err != nil {
		return classify("read the functions", err)
	}
	return nil
}

// pathElements splits a search_path from the catalog into schema names.
func pathElements(path string) []string {
	var elements []string
	var element strings.Builder
	quoted := false
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '"' && quoted && i+1 < len(path) && path[i+1] == '"':
			element.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			elements = append(elements, element.String())
			element.Reset()
		case c == ' ' && !quoted:
		default:
			element.WriteByte(c)
		}
	}
	return append(elements, element.String())
}

// movedRefusal returns an error with statements to repair the functions in moved, or nil.
func (s *State) movedRefusal() error {
	if len(s.moved) == 0 {
		return nil
	}
	return s.refuse(ErrMoved, fmt.Sprintf("run schema.Repair, or: %s", strings.Join(s.moves(), "; ")))
}
