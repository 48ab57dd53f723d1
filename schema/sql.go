package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SQLOptions selects the migrations for [SQL]. The zero value selects all, for the first schema of the search_path.
type SQLOptions struct {
	// From is the current version of the database. SQL returns the later migrations. Empty: all.
	From string
	// To is the last migration to return. Empty: [Version].
	To string
	// Schema is the schema to work in, as in [Options]. The first migration creates a missing schema.
	Schema string
}

// Step is a migration as SQL for another migrator, up and down, including the ledger's row. Run each direction in one
// transaction, as a whole or statement by statement. A step leaves no settings behind.
type Step struct {
	Version, Name string
	Up, Down      string
}

// SQL returns the migrations for a program that applies SQL by itself, oldest first. [Step.Files] formats the steps for
// some migrators. The resulting database is like one from [Migrate], which can continue from there. To continue where
// Migrate stopped, set From to [State.Version].
//
// Unlike Migrate, the steps take no migration lock, set no lock timeout and don't retry; the migrator decides. If a step
// runs twice, the second run fails on the ledger's key. Don't use the steps on a database made by FlowFabric before the
// conversion by [Adopt].
//
// Errors: From or To is not a migration, or From is after To; a schema name with a dot or a dollar sign.
func SQL(opts SQLOptions) ([]Step, error) {
	to := opts.To
	if to == "" {
		to = Version
	}
	known, err := knownMigrations()
	if err != nil {
		return nil, err
	}
	for _, version := range []string{opts.From, to} {
		if version != "" && !slices.ContainsFunc(known, func(m Migration) bool { return m.Version == version }) {
			return nil, errUnknown(version)
		}
	}
	if opts.From > to {
		return nil, fmt.Errorf("schema: version %s is newer than %s", opts.From, to)
	}
	if err := checkSchemaName(opts.Schema); err != nil {
		return nil, err
	}
	if strings.Contains(opts.Schema, "$") {
		return nil, errors.New("schema: the schema name contains a dollar sign")
	}
	var steps []Step
	for i, m := range known {
		if m.Version <= opts.From || m.Version > to {
			continue
		}
		step, err := newStep(m, i == 0, opts.Schema)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func newStep(m Migration, first bool, schema string) (Step, error) {
	script, err := readScript(m)
	if err != nil {
		return Step{}, err
	}
	up, down := []string{enter(schema), record(m.Version) + ";"}, []string{enter(schema), unrecord(m.Version) + ";"}
	if first {
		up = slices.Insert(up, 1, makeLedger+";")
		down[1] = dropLedger + ";"
		if schema != "" {
			up = slices.Insert(up, 0, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{schema}.Sanitize()+";")
		}
	}
	return Step{
		Version: m.Version,
		Name:    m.Name,
		Up:      strings.Join(append(up, strings.TrimSpace(script.up.sql), leave), "\n\n") + "\n",
		Down:    strings.Join(append(down, strings.TrimSpace(script.down.sql), leave), "\n\n") + "\n",
	}, nil
}

// enter applies the settings of a migration: unqualified names mean one schema, also later in functions. leave restores
// the search_path for the migrator's own statements in the transaction.
func enter(schema string) string {
	path := "quote_ident(current_schema())"
	if schema != "" {
		path = literal(pgx.Identifier{schema}.Sanitize())
	}
	return `DO $settings$
BEGIN
    PERFORM set_config('ffx.search_path', current_setting('search_path'), true);
    PERFORM set_config('search_path', ` + path + `, true);
    PERFORM set_config('` + citusPropagation + `', 'off', true);
END
$settings$;`
}

const leave = `DO $settings$
BEGIN
    PERFORM set_config('search_path', current_setting('ffx.search_path'), true);
END
$settings$;`

// Join combines steps into one, named after the newest: up in order, down in reverse. Join is for migrators with
// consecutive versions, where a file with the library's version might sort before applied ones.
func Join(steps []Step) Step {
	var (
		joined   Step
		up, down []string
	)
	for _, step := range steps {
		joined.Version, joined.Name = step.Version, step.Version+"_flowfabric"
		title := "-- " + step.Name + "\n\n"
		up, down = append(up, title+step.Up), append(down, title+step.Down)
	}
	slices.Reverse(down)
	joined.Up, joined.Down = strings.Join(up, "\n"), strings.Join(down, "\n")
	return joined
}

// Format is the file format of a migrator.
type Format string

// Formats of migration files.
const (
	// Plain is SQL for psql or any other program: one file for each direction, with BEGIN and COMMIT.
	Plain Format = "plain"
	// Goose is one file with the annotations of github.com/pressly/goose.
	Goose Format = "goose"
	// GolangMigrate is a pair of files for github.com/golang-migrate/migrate. The tool sends each file at once, so in one
	// transaction. The option x-multi-statement must be off.
	GolangMigrate Format = "golang-migrate"
	// Atlas is a file with the up direction for ariga.io/atlas. Run `atlas migrate hash` afterwards.
	Atlas Format = "atlas"
)

// Formats lists the formats.
func Formats() []Format { return []Format{Plain, Goose, GolangMigrate, Atlas} }

// File is a migration file for a migrator.
type File struct{ Name, Text string }

// Files returns the step in the given format: one file with the up direction or both, and a second one if the down
// direction has a file of its own.
//
// Errors: an unknown format.
func (s Step) Files(format Format) ([]File, error) {
	switch format {
	case Plain:
		return []File{
			{s.Name + ".up.sql", "BEGIN;\n\n" + s.Up + "\nCOMMIT;\n"},
			{s.Name + ".down.sql", "BEGIN;\n\n" + s.Down + "\nCOMMIT;\n"},
		}, nil
	case Goose:
		return []File{{s.Name + ".sql", "-- +goose Up\n" + gooseStatement(s.Up) + "\n-- +goose Down\n" + gooseStatement(s.Down)}}, nil
	case GolangMigrate:
		return []File{{s.Name + ".up.sql", s.Up}, {s.Name + ".down.sql", s.Down}}, nil
	case Atlas:
		return []File{{s.Name + ".sql", s.Up}}, nil
	}
	return nil, fmt.Errorf("schema: unknown format %q: use one of %v", format, Formats())
}

// gooseStatement marks sql as one statement, so goose does not split sql.
func gooseStatement(sql string) string {
	return "-- +goose StatementBegin\n" + sql + "-- +goose StatementEnd\n"
}
