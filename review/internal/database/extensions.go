package database

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Extension is an extension the tool's own session creates before the project's SQL runs.
type Extension struct {
	Name, Schema, Version string
}

// harmless are well-known extensions created only by a superuser, without access to files, programs or other databases.
var harmless = []string{
	"amcheck", "autoinc", "bloom", "earthdistance", "hypopg", "insert_username", "moddatetime", "pg_buffercache",
	"pg_freespacemap", "pg_stat_statements", "pg_visibility", "pgrouting", "pgrowlocks", "pgstattuple", "postgis",
	"postgis_topology", "refint", "rum", "tsm_system_rows", "tsm_system_time", "uuid-ossp", "vector",
}

// Way says how an extension comes into a database of the review.
type Way int

// The ways.
const (
	// ByProject: the project's own statement creates the extension, or the server refuses.
	ByProject Way = iota
	// ByTool: the statement needs a superuser, and the extension is one of the harmless ones.
	ByTool
	// Refused: the statement needs a superuser, and the extension is not harmless.
	Refused
	// Failed: the extension is harmless, but the server does not create it as in the statement.
	Failed
)

// Ways returns how each of the named extensions comes into a database.
func (s *Server) Ways(ctx context.Context, names []string) (map[string]Way, error) {
	ways := map[string]Way{}
	if len(names) == 0 {
		return ways, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, err := s.admin.Query(ctx, "SELECT name::text, bool_or(superuser AND NOT trusted) FROM pg_available_extension_versions WHERE name = ANY ($1) GROUP BY name", names)
	if err != nil {
		return nil, err
	}
	var name string
	var privileged bool
	_, err = pgx.ForEachRow(rows, []any{&name, &privileged}, func() error {
		switch {
		case !privileged:
			ways[name] = ByProject
		case s.super && slices.Contains(harmless, name):
			ways[name] = ByTool
		default:
			ways[name] = Refused
		}
		return nil
	})
	return ways, err
}

// statements create the extension, in one transaction.
func (e Extension) statements(owner string) string {
	var schema string
	statement := "CREATE EXTENSION IF NOT EXISTS " + pgx.Identifier{e.Name}.Sanitize()
	if e.Schema != "" {
		name := pgx.Identifier{e.Schema}.Sanitize()
		schema = fmt.Sprintf("CREATE SCHEMA IF NOT EXISTS %s AUTHORIZATION %s; ", name, owner)
		statement += " SCHEMA " + name
	}
	if e.Version != "" {
		statement += " VERSION " + pgx.Identifier{e.Version}.Sanitize()
	}
	return schema + statement + " CASCADE"
}

// Install makes [Server.Create] create the extensions in each database. It tries each in one database first, leaves out
// the extensions the server does not create, and returns their names.
func (s *Server) Install(ctx context.Context, extensions []Extension) (failed []string, err error) {
	if len(extensions) == 0 || s.login.name == "" {
		return nil, nil
	}
	d, err := s.Create(ctx, "extensions")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	conn, err := pgx.Connect(ctx, s.url(d.Name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range extensions {
		_, err := conn.Exec(ctx, e.statements(s.owner))
		switch {
		case stateOf(err) != "":
			failed = append(failed, e.Name)
		case err != nil:
			return nil, err
		default:
			s.extensions = append(s.extensions, e)
		}
	}
	return failed, nil
}
