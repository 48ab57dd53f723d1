package database

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
)

func TestProjectRoleHasNoRights(t *testing.T) {
	s := start(t)
	d, err := s.Create(t.Context(), "walled")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Create(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		"COPY (SELECT 1) TO PROGRAM 'true'", "SELECT pg_read_file('PG_VERSION')", "CREATE ROLE ff_never", "CREATE DATABASE ff_never", "LOAD 'x'",
		"ALTER ROLE CURRENT_USER SUPERUSER", "ALTER SYSTEM SET work_mem = '1MB'", "SET SESSION AUTHORIZATION postgres",
		"DROP DATABASE " + other.Name, "ALTER DATABASE " + other.Name + " SET work_mem = '1MB'",
	} {
		for _, before := range []string{"", "RESET ROLE", "SET ROLE NONE"} {
			if before != "" {
				if _, err := conn.Exec(t.Context(), before); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := conn.Exec(t.Context(), sql); err == nil {
				t.Errorf("%s; %s was run", before, sql)
			}
		}
	}
	if _, err := conn.Exec(t.Context(), "RESET ROLE; CREATE TABLE t (id int); CREATE EXTENSION citext; COMMENT ON SCHEMA public IS 'x'"); err != nil {
		t.Error(err)
	}
	if made := one[string](t, d, "SELECT relowner::regrole::text FROM pg_class WHERE relname = 't'"); made != owner {
		t.Errorf("the table is %s's", made)
	}
}

func TestRolesAreDropped(t *testing.T) {
	ended, err := Start(t.Context(), container.Run, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	watch := start(t)
	d, err := watch.Create(t.Context(), "watch")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("ff_app_%08x", ended.key)
	for _, s := range []*Server{ended, watch} { // the second finds it
		if missing, err := s.MakeRoles(t.Context(), []string{name}); err != nil || len(missing) > 0 {
			t.Fatal(missing, err)
		}
	}
	exists := func(role string) bool {
		return one[bool](t, d, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = '"+role+"')")
	}
	conn, err := d.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := ended.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exists(ended.login) {
		t.Error("the login of an ended review is left")
	}
	if !exists(name) {
		t.Error("a role that another review uses was dropped")
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE t (id int); GRANT SELECT ON t TO "+pgx.Identifier{name}.Sanitize()); err != nil {
		t.Error(err)
	}
	if err := d.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := watch.dropRoles(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left string
	err = watch.admin.QueryRow(t.Context(), "SELECT coalesce(string_agg(rolname, ' '), '') FROM pg_roles WHERE rolname = ANY ($1)", []string{name, watch.login}).Scan(&left)
	if err != nil || strings.TrimSpace(left) != "" {
		t.Errorf("%q is left, error %v", left, err)
	}
}
