package trust

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

func TestPiecesRefuseStatements(t *testing.T) {
	for sql, want := range map[string]string{
		"COPY t TO PROGRAM 'x'":            "runs a program on the server",
		"COPY t FROM '/etc/passwd'":        "accesses a file of the server",
		"LOAD 'x'":                         "loads a library into the server",
		"ALTER SYSTEM SET a = 1":           "changes the server's configuration",
		"CREATE ROLE a SUPERUSER":          "gives a role rights on the server",
		"CREATE ROLE a IN ROLE pg_monitor": "gives a role rights on the server",
		"GRANT pg_monitor TO a":            "gives a role rights on the server",
		"SET LOCAL ROLE a":                 "changes the role of the session",
		"CREATE FUNCTION f() RETURNS int LANGUAGE sql SET role = a RETURN 1":                      "changes the role of the session",
		"SELECT set_config('ROLE'::text, 'a', true)":                                              "changes the role of the session",
		"CREATE FUNCTION f() RETURNS int LANGUAGE internal AS 'x'":                                "has code in internal, a language that can leave the database",
		"CREATE FUNCTION f() RETURNS text LANGUAGE sql RETURN pg_read_file('x')":                  "calls pg_read_file, which reaches files, other servers or the server itself",
		"CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM dblink('x'); END$$": "calls dblink, which reaches files, other servers or the server itself",
		"DO $$BEGIN EXECUTE $q$ALTER SYSTEM SET a = 1$q$; END$$":                                  "changes the server's configuration",
		"DO $$BEGIN /* x */ COPY t FROM /* y */ '/etc/passwd'; END$$":                             "accesses a file of the server",
		"DO $$BEGIN IF true THEN SET ROLE a; END IF; END$$":                                       "changes the role of the session",
		"CREATE VIEW v AS SELECT pg_ls_dir('.')":                                                  "calls pg_ls_dir, which reaches files, other servers or the server itself",
		"ALTER TABLE t ALTER c SET DEFAULT lo_import('x')":                                        "calls lo_import, which reaches files, other servers or the server itself",
		"CREATE DATABASE d":                                 "makes or drops a database",
		"ALTER DATABASE d RENAME TO e":                      "changes a database or a tablespace",
		"CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw": "connects the server to another one, or to a file",
		"CREATE TABLE t (); COPY t TO PROGRAM 'x' nonsense": "runs a program on the server",
		"PREPARE TRANSACTION 'x'":                           "is about a prepared transaction, which outlives its session",
		"COMMIT PREPARED 'x'":                               "is about a prepared transaction, which outlives its session",
		"nonsense; PREPARE TRANSACTION 'x'":                 "is about a prepared transaction, which outlives its session",
		"COPY t FROM STDIN":                                 "",
		"SET lock_timeout = '2s'":                           "",
		"RESET ROLE":                                        "",
		"CREATE TABLE server (role text, program text, load int, \"user\" text)":                                                      "",
		"COMMENT ON TABLE t IS 'COPY t TO PROGRAM'":                                                                                   "",
		"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.role := 'x'; UPDATE t SET role = 'y'; RETURN NEW; END$$": "",
	} {
		var found string
		for _, p := range pieces(sql) {
			if p.refused != "" {
				found = p.refused
			}
		}
		if found != want {
			t.Errorf("%s: %q, want %q", sql, found, want)
		}
	}
}

func TestCleanKeepsLinesAndHarmlessStatements(t *testing.T) {
	dir := t.TempDir()
	const text = `-- migrate:up
CREATE ROLE app
  LOGIN;
DO $$
BEGIN
  IF true THEN CREATE ROLE other LOGIN; END IF;
END $$;
CREATE SCHEMA gis;
CREATE EXTENSION postgis SCHEMA gis;
CREATE EXTENSION evil;
CREATE EXTENSION hstore;
ALTER TABLE t OWNER TO "app";
CREATE SCHEMA AUTHORIZATION app;
GRANT SELECT ON t TO app, reader;
COMMENT ON EXTENSION postgis IS 'x';
-- migrate:down
COPY t TO PROGRAM 'x';
DROP TABLE t;
`
	const want = `-- migrate:up
               
       ;
DO $$
BEGIN
  IF true THEN NULL                   ; END IF;
END $$;
CREATE SCHEMA IF NOT EXISTS gis;
                                   ;
                     ;
CREATE EXTENSION hstore;
ALTER TABLE t OWNER TO CURRENT_USER;
CREATE SCHEMA app AUTHORIZATION CURRENT_USER;
GRANT SELECT ON t TO app, reader;
                                   ;
-- migrate:down
                     ;
DROP TABLE t;
`
	if err := os.WriteFile(filepath.Join(dir, "1_a.sql"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	side, err := project.Read(dir, project.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reading := Read(&project.Side{}, side)
	if want := []string{"app", "other", "reader"}; !slices.Equal(reading.Roles, want) {
		t.Errorf("the roles are %q, want %q", reading.Roles, want)
	}
	ways := map[string]database.Way{"postgis": database.ByTool, "evil": database.Refused}
	if got := reading.Installs(ways); len(got) != 1 || got[0] != (database.Extension{Name: "postgis", Schema: "gis"}) {
		t.Errorf("the tool creates %+v", got)
	}
	_, head, findings, err := reading.Clean(ways)
	if err != nil {
		t.Fatal(err)
	}
	if got := head.Migrations[0].Text; got != want {
		t.Errorf("the text is\n%s\nwant\n%s", strings.ReplaceAll(got, " ", "·"), strings.ReplaceAll(want, " ", "·"))
	}
	if n := len(head.Migrations[0].Down.Statements); n != 1 {
		t.Errorf("there are %d statements down", n)
	}
	var lines []int
	for _, f := range findings {
		if f.Rule == "statement-refused" {
			lines = append(lines, f.Place.Line)
		}
	}
	if !slices.Equal(lines, []int{10, 17}) {
		t.Errorf("lines %d are refused: %+v", lines, findings)
	}
}
