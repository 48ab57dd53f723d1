package schema

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/amacneil/dbmate/v2/pkg/dbmate"
	"github.com/amacneil/dbmate/v2/pkg/driver/postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

const driverName = "flowfabric"

// dbmate finds drivers in a registry of its own.
var registerDriver = sync.OnceFunc(func() {
	dbmate.RegisterDriver(func(config dbmate.DriverConfig) dbmate.Driver {
		return driver{Driver: postgres.NewDriver(config), url: config.DatabaseURL.String()}
	}, driverName)
})

// driver is dbmate's Postgres driver over pgx, so that migrations connect by the same rules as the
// rest of this library (TLS, password file, environment) and their errors carry a SQLSTATE.
type driver struct {
	dbmate.Driver
	url string
}

func (d driver) Open() (*sql.DB, error) {
	config, err := connConfig(d.url, "")
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config), nil
}

// QueryError names the line of a failed statement; dbmate's own hides the cause from errors.As.
func (d driver) QueryError(query string, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Position < 1 || int(pgErr.Position) > len([]rune(query)) {
		return err
	}
	before := string([]rune(query)[:pgErr.Position-1])
	return fmt.Errorf("line %d from its directive on: %w", 1+strings.Count(before, "\n"), err)
}

// newDBMate returns a dbmate for the migrations of this package in an existing schema.
func newDBMate(databaseURL, schema string, log io.Writer) (*dbmate.DB, error) {
	registerDriver()
	// A database URL has no fragment, as net/url would have it.
	u, err := url.Parse(strings.ReplaceAll(databaseURL, "#", "%23"))
	if err != nil {
		return nil, errURL
	}
	setParameter(u, "search_path", pgx.Identifier{schema}.Sanitize())
	// A migration that waits for a table lock holds up everyone behind it.
	setParameter(u, "lock_timeout", lockTimeout)
	setParameter(u, "statement_timeout", "0")
	setParameter(u, citusPropagation, "off")

	db := dbmate.New(u)
	db.DriverName = driverName
	db.AutoDumpSchema = false
	db.FS = migrations
	db.MigrationsDir = []string{"migrations"}
	db.MigrationsTableName = schema + "." + ledgerTable
	db.Log = log
	return db, nil
}

// setParameter sets a parameter of a database URL. The others stay as they are written: pgx, unlike
// net/url, does not read a plus sign as a space.
func setParameter(u *url.URL, name, value string) {
	parameters := slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(parameter string) bool {
		return parameter == "" || strings.HasPrefix(parameter, name+"=")
	})
	value = strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
	u.RawQuery = strings.Join(append(parameters, name+"="+value), "&")
}

// progress logs what dbmate prints, a line a call, and remembers which migration it is at.
type progress struct {
	log   *slog.Logger
	doing string
}

func (p *progress) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.HasPrefix(text, "Applying: ") || strings.HasPrefix(text, "Rolling back: ") {
		p.doing = text
	}
	p.log.Debug(text)
	return len(line), nil
}

// errURL does not quote what it complains about: a malformed URL may show its password anywhere.
var errURL = errors.New("schema: the database URL is not of the form postgres://user:password@host:port/database")

// PoolConfig reads a database URL as every operation of this package does, and chooses the schema: one that is not
// empty becomes the search_path, whatever search_path the URL names. All else in the URL holds as it is written.
//
// An error says what is wrong and repeats nothing of the URL.
func PoolConfig(databaseURL, schema string) (*pgxpool.Config, error) {
	if !strings.HasPrefix(databaseURL, "postgres://") && !strings.HasPrefix(databaseURL, "postgresql://") {
		return nil, errURL
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, errURL
	}
	if strings.Contains(schema, ".") {
		return nil, fmt.Errorf("schema: the schema name %q contains a dot", schema)
	}
	if schema != "" {
		config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	}
	return config, nil
}

func connConfig(databaseURL, schema string) (*pgx.ConnConfig, error) {
	config, err := PoolConfig(databaseURL, schema)
	if err != nil {
		return nil, err
	}
	return config.ConnConfig, nil
}
