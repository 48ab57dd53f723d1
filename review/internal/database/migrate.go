package database

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing/fstest"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	_ "github.com/amacneil/dbmate/v2/pkg/driver/postgres" // dbmate's
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// MigrationError is a migration the database refuses.
type MigrationError struct {
	Migration project.Migration
	Down      bool
	// Place is the line the server names, or the file as a whole.
	Place report.Place
	Err   error
}

func (e *MigrationError) Error() string {
	direction := "up"
	if e.Down {
		direction = "down"
	}
	if e.Migration.File == "" {
		return e.Err.Error() // a command of the caller's
	}
	return fmt.Sprintf("%s, %s: %v", e.Migration.File, direction, e.Err)
}

// Reason is the server's message.
func (e *MigrationError) Reason() string {
	if refused, ok := errors.AsType[*pgconn.PgError](e.Err); ok {
		if refused.Detail != "" {
			return refused.Message + " (" + strings.TrimSuffix(refused.Detail, ".") + ")"
		}
		return refused.Message
	}
	refused, ok := errors.AsType[*pq.Error](e.Err)
	switch {
	case !ok:
		return e.Err.Error()
	case refused.Detail != "":
		return refused.Message + " (" + strings.TrimSuffix(refused.Detail, ".") + ")"
	}
	return refused.Message
}

// Said is the reason in a sentence, with the source.
func (e *MigrationError) Said() string {
	if _, is := errors.AsType[*pgconn.PgError](e.Err); is || e.Migration.Tool == project.Dbmate || e.Migration.Tool == "" {
		return "PostgreSQL says: " + e.Reason() + "."
	}
	return e.Reason() + "."
}

func (e *MigrationError) Unwrap() error { return e.Err }

// quoted is a name in a message of the server.
var quoted = regexp.MustCompile(`"([^"]+)"`)

// Migrate applies the migrations the database does not have, as their tool does. table is the tool's own.
//
// Errors: [*MigrationError] for a failed migration; earlier ones stay applied.
func (d *Database) Migrate(ctx context.Context, migrations []project.Migration, table string) error {
	if len(migrations) > 0 && migrations[0].Tool != project.Dbmate {
		return d.apply(ctx, migrations, table)
	}
	return d.dbmate(ctx, migrations, table, "Applying: ", (*dbmate.DB).Migrate)
}

// Rollback rolls back the newest of the migrations the database has, as their tool does.
//
// Errors: [*MigrationError] for a failure; dbmate.ErrNoRollback if the database has none of the migrations.
func (d *Database) Rollback(ctx context.Context, migrations []project.Migration, table string) error {
	if len(migrations) > 0 && migrations[0].Tool != project.Dbmate {
		return d.takeBack(ctx, migrations, table)
	}
	return d.dbmate(ctx, migrations, table, "Rolling back: ", (*dbmate.DB).Rollback)
}

func (d *Database) dbmate(ctx context.Context, migrations []project.Migration, table, announced string, run func(*dbmate.DB) error) error {
	if len(migrations) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	u, err := url.Parse(d.URL)
	if err != nil {
		return errors.New("the database's URL is not one")
	}
	settings := u.Query()
	settings.Set("application_name", "schema-review")
	if settings.Get("sslmode") == "" {
		// dbmate's driver requires TLS by default; other drivers only try.
		settings.Set("sslmode", map[bool]string{false: "disable", true: "require"}[d.server.tls])
	}
	u.RawQuery = settings.Encode()

	const dir = "migrations"
	files := fstest.MapFS{}
	for _, m := range migrations {
		files[path.Join(dir, path.Base(m.File))] = &fstest.MapFile{Data: []byte(m.Text)}
	}
	var log bytes.Buffer
	db := dbmate.New(u)
	db.FS, db.MigrationsDir, db.MigrationsTableName = files, []string{dir}, table
	db.AutoDumpSchema, db.Log = false, &log
	stop := d.limit(ctx) // dbmate takes no context
	err = run(db)
	stop()
	if err == nil {
		return nil
	}
	// dbmate's error does not name the migration, but the log does.
	_, after, found := cutLast(log.String(), announced)
	name, _, _ := strings.Cut(after, "\n")
	for _, m := range migrations {
		if found && path.Base(m.File) == name {
			return newMigrationError(m, announced == "Rolling back: ", err)
		}
	}
	return err
}

func newMigrationError(m project.Migration, down bool, err error) error {
	e := &MigrationError{Migration: m, Down: down, Place: report.Place{File: m.File}, Err: err}
	if query, ok := errors.AsType[*dbmate.QueryError](err); ok {
		e.Err = query.Err
		characters := []rune(query.Query)
		if at := strings.Index(m.Text, query.Query); at >= 0 && query.Position > 0 && query.Position <= len(characters) {
			e.Place = m.PlaceOf(at + len(string(characters[:query.Position-1])))
		}
	}
	e.locate()
	return e
}

// locate finds the line of a refusal with an object, but without a line, as usual.
func (e *MigrationError) locate() {
	if e.Place.Line > 0 {
		return
	}
	var named []string
	for _, found := range quoted.FindAllStringSubmatch(e.Reason(), -1) {
		named = append(named, found[1])
	}
	e.Place = project.Locate([]project.Migration{e.Migration}, strings.Join(named, " "), e.Down)
}

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}
