package trust

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
)

// odd are decisions that know an extension and a schema that the tool makes.
func odd() *decisions {
	return &decisions{ways: map[string]database.Way{"postgis": database.ByTool}, tool: map[string]bool{"postgis": true, "schema gis": true}}
}

// Letters such as ɐ are longer in upper case, and comments hold keywords.
func TestCleanFindsKeywordsByTokens(t *testing.T) {
	for sql, want := range map[string]string{
		"CREATE /* SCHEMA ɐɐɐɐɐɐɐɐ */ SCHEMA gis":                "CREATE /* SCHEMA ɐɐɐɐɐɐɐɐ */ SCHEMA IF NOT EXISTS gis",
		"CREATE SCHEMA gis -- IF NOT EXISTS\n;":                  "CREATE SCHEMA IF NOT EXISTS gis -- IF NOT EXISTS\n;",
		"CREATE SCHEMA if not exists gis":                        "CREATE SCHEMA if not exists gis",
		"CREATE SCHEMA /* ɐɐɐɐɐɐɐɐɐɐɐɐɐɐ */ AUTHORIZATION app":   "CREATE SCHEMA /* ɐɐɐɐɐɐɐɐɐɐɐɐɐɐ */ app AUTHORIZATION CURRENT_USER",
		"CREATE SCHEMA AUTHORIZATION\n\"ɐ\"":                     "CREATE SCHEMA \n\"ɐ\" AUTHORIZATION CURRENT_USER",
		"SELECT 'ɐ'; ALTER TABLE ɐ OWNER TO /* ɐ */ app; SELECT": "SELECT 'ɐ'; ALTER TABLE ɐ OWNER TO /* ɐ */ CURRENT_USER; SELECT",
	} {
		if got := odd().cleaned(sql, pieces(sql)); got != want {
			t.Errorf("%q is cleaned to %q, want %q", sql, got, want)
		}
	}
}

// A DO block keeps only statements that a review runs.
func TestCleanDropsBlocksThatStillChangeRoles(t *testing.T) {
	for sql, want := range map[string]string{
		"DO $$BEGIN CREATE ROLE a; END$$":                              "DO $$BEGIN NULL         ; END$$",
		"DO $x$BEGIN CREATE ROLE a; PERFORM 1; END$x$":                 "DO $x$BEGIN NULL         ; PERFORM 1; END$x$",
		"DO 'BEGIN CREATE ROLE a; END'":                                "",
		"DO $$BEGIN CREATE ROLE a; EXECUTE 'CREATE ROLE b'; END$$":     "",
		"DO $$BEGIN RAISE NOTICE 'Please do not create user x'; END$$": "DO $$BEGIN RAISE NOTICE 'Please do not create user x'; END$$",
		"DO $$BEGIN ALTER TABLE t DROP role; END$$":                    "DO $$BEGIN ALTER TABLE t DROP role; END$$",
	} {
		if got := strings.TrimRight(odd().cleaned(sql, pieces(sql)), " "); got != want {
			t.Errorf("%q is cleaned to %q, want %q", sql, got, want)
		}
	}
}

func FuzzCleaned(f *testing.F) {
	for _, sql := range []string{
		"", ";", "\x00", "SELECT 1\x00; COPY t TO PROGRAM 'x'", "\xff", "CREATE SCHEMA AUTHORIZATION \"ɐ\"", "/* SCHEMA ɐ */ CREATE SCHEMA gis; CREATE ROLE none",
		"DO $$BEGIN CREATE ROLE a; EXECUTE 'x'; END$$", "DO $a$ $$ $a$", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "COPY t FROM STDIN;\n1\n\\.\n",
		"ALTER TABLE ɐ OWNER TO app; GRANT a TO b; CREATE EXTENSION postgis SCHEMA gis", "ALTER DEFAULT PRIVILEGES FOR ROLE a, \"B\" GRANT SELECT ON TABLES TO c",
	} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		got := odd().cleaned(sql, pieces(sql))
		if a, b := strings.Count(got, "\n"), strings.Count(sql, "\n"); a != b {
			t.Errorf("%q has %d lines, cleaned %q has %d", sql, b, got, a)
		}
	})
}
