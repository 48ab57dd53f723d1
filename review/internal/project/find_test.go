package project

import (
	"slices"
	"testing"
)

// Each folder that may hold migrations is either reviewed or reported, and the other side's folder is preferred.
func TestReadReportsFoldersThatItDidNotChoose(t *testing.T) {
	const up, table = "-- migrate:up\nSELECT 1;\n-- migrate:down\n", "CREATE TABLE a (id int);\n"
	for _, c := range []struct {
		name   string
		files  map[string]string
		opts   Options
		want   string
		unread []string
	}{
		{
			name:  "two marked folders, and one is the usual one",
			files: map[string]string{"db/migrations/1_a.sql": up, "billing/migrations/1_b.sql": up}, want: "db/migrations",
			unread: []string{"billing/migrations if changed"},
		},
		{
			name:  "a plain one beside a marked one",
			files: map[string]string{"m/1_a.sql": up, "old/migrations/1_b.sql": table}, want: "m", unread: []string{"old/migrations if changed"},
		},
		{
			name:  "files at the root",
			files: map[string]string{"db/migrations/1_a.sql": up, "2_b.sql": up}, want: "db/migrations", unread: []string{"2_b.sql if changed"},
		},
		{
			name:  "another folder that a new setting names",
			files: map[string]string{"db/migrations/1_a.sql": up, "decoy/1_a.sql": up, ".env": "DBMATE_MIGRATIONS_DIR=decoy\n"},
			opts:  Options{PreferredDir: "db/migrations"}, want: "db/migrations", unread: []string{"decoy if changed"},
		},
		{
			name:  "a marked folder beside the plain one of the other side",
			files: map[string]string{"schema/1_a.sql": table, "decoy/1_a.sql": up},
			opts:  Options{PreferredDir: "schema"}, want: "schema", unread: []string{"decoy if changed"},
		},
		{
			name:  "a folder that moved",
			files: map[string]string{"moved/1_a.sql": up}, opts: Options{PreferredDir: "m"}, want: "moved",
		},
		{
			name:  "a folder that moved, except for a file",
			files: map[string]string{"moved/1_a.sql": up, "m/rest.sql": table}, opts: Options{PreferredDir: "m"}, want: "moved", unread: []string{"m if changed"},
		},
		{
			name:  "a named folder",
			files: map[string]string{"db/migrations/1_a.sql": up, "m/1_b.sql": up}, opts: Options{MigrationsDir: "m"}, want: "m",
		},
		{
			name:  "folders of Flyway",
			files: map[string]string{"m/V1__a.sql": table, "m/b/V2__b.sql": table}, want: "m",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			side, err := read(t, c.files, c.opts)
			if err != nil {
				t.Fatal(err)
			}
			if side.MigrationsDir != c.want {
				t.Errorf("the folder is %q, want %q", side.MigrationsDir, c.want)
			}
			if got := unreadOf(side); !slices.Equal(got, c.unread) {
				t.Errorf("unread are %q, want %q", got, c.unread)
			}
		})
	}
}

// Folders beside the one that the caller names are known, also those without a tool's marks.
func TestReadPassesOverFoldersBesideTheNamedOne(t *testing.T) {
	const up, table = "-- migrate:up\nSELECT 1;\n-- migrate:down\n", "CREATE TABLE a (id int);\n"
	files := map[string]string{
		"m/1_a.sql": up, "m/more/2_b.sql": up, "db/migrations/1_a.sql": up, "other/migrations/1_b.sql": table, "3_c.sql": up, "queries/a.sql": "SELECT 1;\n",
	}
	side, err := read(t, files, Options{MigrationsDir: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"3_c.sql", "db/migrations", "other/migrations"}; !slices.Equal(side.PassedOver, want) {
		t.Errorf("passed over are %q, want %q", side.PassedOver, want)
	}
}

func TestChangedSettings(t *testing.T) {
	base, err := read(t, map[string]string{".env": "DBMATE_MIGRATIONS_TABLE=a\nDBMATE_WAIT=1\nOTHER=1\n"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	head, err := read(t, map[string]string{".env": "DBMATE_MIGRATIONS_DIR=decoy\nDBMATE_WAIT=1\nOTHER=2\n"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ChangedSettings(base, head); !slices.Equal(got, []string{"DBMATE_MIGRATIONS_DIR", "DBMATE_MIGRATIONS_TABLE"}) {
		t.Errorf("changed are %q", got)
	}
}
