package review_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/review"
)

// A role that cannot make one without rights runs the SQL of a change only if the caller trusts it.
func TestRunNeedsTrustForARoleThatCannotCreateRoles(t *testing.T) {
	server, err := pgserver.Start(t.Context(), pgserver.Options{Purpose: pgserver.Tests, Container: container.Run, Log: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	role := "ff_trust_" + strings.ToLower(rand.Text())
	if _, err := admin.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD 'x' CREATEDB"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := admin.Exec(t.Context(), "DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	}()
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "x")
	t.Setenv("FF_POSTGRES", "url")
	t.Setenv("DATABASE_URL", u.String())
	base, head := layHostile(t, hostile{}), layHostile(t, hostile{Files: map[string]string{
		"db/migrations/2_a.sql": "-- migrate:up\nCREATE TABLE basket (id int PRIMARY KEY);\n-- migrate:down\nDROP TABLE basket;\n",
	}})
	var log bytes.Buffer
	config := review.Config{Dir: head, BaseDir: base, Rows: 20, Log: &log}
	if _, err := review.Run(t.Context(), config); err == nil || !strings.Contains(err.Error(), "grant it CREATEROLE") {
		t.Errorf("error %v", err)
	}
	config.TrustSQL = true
	if r, err := review.Run(t.Context(), config); err != nil || len(r.Catalog) == 0 {
		t.Errorf("report %+v, error %v", r, err)
	}
	if !strings.Contains(log.String(), "runs as "+role) {
		t.Errorf("the log is %q", log.String())
	}
}
