package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SQLOptions choose what [SQL] returns. The zero value: everything, for the first schema of the search_path.
type SQLOptions struct {
	// From is the version that the database is at; the migrations after it are returned. Empty: from the first on.
	From string
	// To is the last migration returned. Empty: [Version].
	To string
	// Schema is the schema to work in, as in [Options]; the first migration makes it if it does not exist.
	Schema string
}

// A Step is a migration as SQL for another migrator: both ways, with the ledger's row. Each way is to be run in one
// transaction, whole or statement by statement; it leaves no setting behind.
type Step struct {
	Version, Name string
	Up, Down      string
}

// SQL returns the migrations for a program that applies SQL by itself, oldest first: see [Step.Files] for the known
// ones. A database that was migrated by them is one of this library's: [Check] and the engine accept it, and [Migrate]
// goes on from there. The other way round, SQL goes on where Migrate stopped: From is then [State.Version].
//
// Unlike Migrate the steps do not wait for each other behind its lock, set no lock timeout and do not try again: the
// migrator that runs them does what it does. Of two runs of one step the second fails, at the ledger's key. They are
// not for a database that FlowFabric made and [Adopt] has not converted.
//
// Errors: From or To is no migration, or they are in the wrong order; a schema name with a dot or a dollar sign.
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

// enter makes the settings of a migration: unqualified names mean one schema, which functions remember too. leave
// restores the search_path, for what the migrator itself does in the transaction.
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

// Join returns one step for all of steps, named after the newest: forwards in their order, backwards in reverse. It is
// for a migrator whose versions count on: a file of this library's own version may come before what is applied.
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

// Format is the form in which a migrator wants its files.
type Format string

// The formats.
const (
	// Plain is SQL for psql or any other program: one file for each way, with BEGIN and COMMIT.
	Plain Format = "plain"
	// Goose is one file with the annotations of github.com/pressly/goose.
	Goose Format = "goose"
	// GolangMigrate is a pair of files for github.com/golang-migrate/migrate, which runs each at once and so in a
	// transaction. Its x-multi-statement must be off.
	GolangMigrate Format = "golang-migrate"
	// Atlas is a file with the way up for ariga.io/atlas; `atlas migrate hash` has to follow.
	Atlas Format = "atlas"
)

// Formats lists the formats.
func Formats() []Format { return []Format{Plain, Goose, GolangMigrate, Atlas} }

// A File is what a migrator reads.
type File struct{ Name, Text string }

// Files returns the step as the files of a format: the way up, or both, and then the way down if that is a file apart.
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
	return nil, fmt.Errorf("schema: the format %q is unknown; there are %v", format, Formats())
}

// gooseStatement keeps goose from looking for the ends of statements.
func gooseStatement(sql string) string {
	return "-- +goose StatementBegin\n" + sql + "-- +goose StatementEnd\n"
}
