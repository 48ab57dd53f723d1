package database

import (
	"fmt"
	"net/url"
	"os"
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
	if exists(ended.login.name) {
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
	err = watch.admin.QueryRow(t.Context(), "SELECT coalesce(string_agg(rolname, ' '), '') FROM pg_roles WHERE rolname = ANY ($1)", []string{name, watch.login.name}).Scan(&left)
	if err != nil || strings.TrimSpace(left) != "" {
		t.Errorf("%q is left, error %v", left, err)
	}
}

// A server works with the rights that the role of DATABASE_URL has, and refuses one whose SQL could reach the server's files.
func TestStartWithLesserRoles(t *testing.T) {
	admin := start(t)
	for _, c := range []struct {
		name, rights string
		own, refused bool
	}{
		{"creates", "CREATEDB", false, false},
		{"reads", "CREATEDB IN ROLE pg_read_server_files", false, true},
		{"roles", "CREATEDB CREATEROLE", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			role := fmt.Sprintf("ff_lesser_%08x_%s", admin.key, c.name)
			exec := func(sql string) {
				t.Helper()
				if _, err := admin.admin.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			exec("CREATE ROLE " + role + " LOGIN PASSWORD 'lesser' " + c.rights)
			u := *admin.base
			u.User = url.UserPassword(role, "lesser")
			t.Setenv("FF_POSTGRES", "url")
			t.Setenv("DATABASE_URL", u.String())
			s, err := Start(t.Context(), nil, t.Output())
			if c.refused != (err != nil) {
				t.Fatalf("error %v", err)
			}
			if err == nil {
				name, own := s.Own()
				if own != c.own || own && name == owner { // in versions from 16 on, only a superuser's review makes members of that one
					t.Errorf("the review has a role of its own: %v, %s", own, name)
				}
				d, err := s.Create(t.Context(), "lesser")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Copy(t.Context(), d, "copy"); err != nil {
					t.Error(err)
				}
				if n := one[int](t, d, "SELECT 1"); n != 1 {
					t.Errorf("got %d", n)
				}
				if _, err := d.Connect(t.Context()); err != nil { // the end of the review ends it
					t.Error(err)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			exec("DROP OWNED BY " + role)
			exec("DROP ROLE " + role)
		})
	}
}

// Reviews that begin at once share the owner's rights.
func TestManyReviewsStartAtOnce(t *testing.T) {
	began := make(chan error)
	const reviews = 12
	for range reviews {
		go func() {
			s, err := Start(t.Context(), container.Run, os.Stderr)
			if err == nil {
				err = s.Close(t.Context())
			}
			began <- err
		}()
	}
	for range reviews {
		if err := <-began; err != nil {
			t.Error(err)
		}
	}
}
