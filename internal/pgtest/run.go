package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/container"
	"github.com/flowfabric/flowfabric-go/schema"
)

// A database of the tests is named <prefix>_<key>_<rest>: its owner's key, as 8 hexadecimal digits, and
//
//	template   the migrated, or converted, database others are cloned from; the key is the migrations' hash
//	shared     the database of [Pool]; the key is the same
//	1, 2, …    a database of one test; the key is the test binary's, chosen at random
//
// The user of a key holds the advisory lock (databasesLock, key): exclusively for the binary's own, shared for the
// hash. So a database whose key is not locked is left over from a killed process, and the next run drops it.
const databasesLock = 0x66667464

// startKey locks the time in which a test binary drops left-over databases and creates the missing ones. Random keys
// and hashes may have any other value.
const startKey = 0

// maintenance is the database whose advisory locks all test binaries share.
const maintenance = "postgres"

// layout says which databases a run makes.
type layout struct {
	prefix string                                              // of their names: letters and one "_"
	hash   int32                                               // of everything the template depends on
	make   func(ctx context.Context, databaseURL string) error // fills the template
}

// libraryLayout is the layout of the library's own tests.
func libraryLayout() (layout, error) {
	hash, err := migrationsKey(os.Getenv(reference))
	return layout{prefix: "ff_test", hash: hash, make: makeSchema}, err
}

// run is a test binary's part of a test run.
type run struct {
	layout
	server   *pgserver.Server // kept for its reference: an unreachable server would be collected and the connection closed
	announce sync.Once
	base     *url.URL      // the server's URL
	admin    *pgxpool.Pool // on the maintenance database
	locks    *pgx.Conn     // holds the keys until the process ends
	pool     *pgxpool.Pool // on the shared database

	copying string // how the server is asked to clone a database
	own     int32  // key
	created atomic.Int64
}

// startRun starts the run of the library's tests, with the shared database.
func startRun(ctx context.Context) (*run, error) {
	of, err := libraryLayout()
	if err != nil {
		return nil, err
	}
	r, err := begin(ctx, of)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, r.ensureShared); err != nil {
		return nil, fmt.Errorf("prepare the databases of the tests: %w", err)
	}
	return r, nil
}

// begin finds or starts the server.
func begin(ctx context.Context, of layout) (*run, error) {
	server, err := pgserver.Start(ctx, pgserver.Options{
		Purpose:   pgserver.Tests,
		Container: container.Run,
		Log:       os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	r := &run{layout: of, server: server, own: randomKey()}
	if r.base, err = url.Parse(server.URL()); err != nil {
		return nil, errors.New("DATABASE_URL is not a URL") // the text may hold a password
	}
	if r.admin, err = newPool(ctx, r.databaseURL(maintenance), 4); err != nil {
		return nil, err
	}
	if r.locks, err = pgx.Connect(ctx, r.databaseURL(maintenance)); err != nil {
		return nil, err
	}
	r.copying, err = copyingOf(ctx, r.locks)
	return r, err
}

// prepare drops the left-overs of earlier runs, creates the template unless another test binary did, and calls ensure, while
// no other test binary does the same.
func (r *run) prepare(ctx context.Context, ensure func(context.Context) error) error {
	if err := r.lock(ctx, "pg_advisory_lock", startKey); err != nil {
		return err
	}
	if err := r.dropAbandoned(ctx); err != nil {
		return err
	}
	if err := r.lock(ctx, "pg_advisory_lock", r.own); err != nil {
		return err
	}
	if err := r.lock(ctx, "pg_advisory_lock_shared", r.hash); err != nil {
		return err
	}
	if err := r.ensureTemplate(ctx); err != nil {
		return err
	}
	if err := ensure(ctx); err != nil {
		return err
	}
	return r.lock(ctx, "pg_advisory_unlock", startKey)
}

func (r *run) lock(ctx context.Context, function string, key int32) error {
	_, err := r.locks.Exec(ctx, fmt.Sprintf("SELECT %s($1, $2)", function), databasesLock, key)
	return err
}

// dropAbandoned drops the databases whose key is not locked, but keeps this run's template.
func (r *run) dropAbandoned(ctx context.Context) error {
	rows, err := r.locks.Query(ctx, "SELECT datname FROM pg_database WHERE datname ~ $1", "^"+r.prefix+"_[0-9a-f]{8}_")
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		key, err := strconv.ParseUint(strings.Split(name, "_")[2], 16, 32)
		if err != nil {
			return err
		}
		if name == r.template() {
			continue
		}
		var abandoned bool
		err = r.locks.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", databasesLock, int32(key)).Scan(&abandoned)
		if err != nil {
			return err
		}
		if !abandoned {
			continue
		}
		if err := r.drop(ctx, name); err != nil {
			return err
		}
		if err := r.lock(ctx, "pg_advisory_unlock", int32(key)); err != nil {
			return err
		}
	}
	return nil
}

// ensureTemplate makes the template, which takes connections only until complete: an autovacuum worker or a curious
// person there would hold up every clone.
func (r *run) ensureTemplate(ctx context.Context) error {
	var complete bool
	err := r.admin.QueryRow(ctx, "SELECT NOT datallowconn FROM pg_database WHERE datname = $1", r.template()).Scan(&complete)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return err
	case complete:
		return nil
	default:
		if err := r.drop(ctx, r.template()); err != nil {
			return err
		}
	}
	if err := r.clone(ctx, r.template(), "template0"); err != nil {
		return err
	}
	if err := r.make(ctx, r.databaseURL(r.template())); err != nil {
		return err
	}
	// The first session after the last change of the catalog stores the descriptions of the catalog's tables in a file. A
	// copy has the file, and saves its first session the work.
	if err := execute(ctx, r.databaseURL(r.template()), "SELECT"); err != nil {
		return err
	}
	_, err = r.admin.Exec(ctx, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", r.template()))
	return err
}

// reference names a file with the SQL of a database FlowFabric made. If set, the tests run on databases converted from
// such a one.
const reference = "FF_TEST_REFERENCE"

// silent migrates without a log.
var silent = schema.Options{Log: slog.New(slog.DiscardHandler)}

// makeSchema makes the schema in an empty database.
func makeSchema(ctx context.Context, databaseURL string) error {
	file := os.Getenv(reference)
	if file == "" {
		_, err := schema.Migrate(ctx, databaseURL, silent)
		return err
	}
	sql, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, string(sql)); err != nil {
		return err
	}
	if _, err := schema.Adopt(ctx, conn, schema.AdoptOptions{Options: silent}); err != nil {
		return err
	}
	_, err = schema.DropAdopted(ctx, conn, silent)
	return err
}

// ensureShared makes the shared database and opens this binary's pool.
func (r *run) ensureShared(ctx context.Context) error {
	var exists bool
	err := r.admin.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", r.shared()).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists {
		if err := r.clone(ctx, r.shared(), r.template()); err != nil {
			return err
		}
	}
	r.pool, err = newPool(ctx, r.databaseURL(r.shared()), sharedPoolSize)
	return err
}

// create makes a database of this test binary and returns its name.
func (r *run) create(ctx context.Context, template string) (string, error) {
	name := r.databaseName(r.own, strconv.FormatInt(r.created.Add(1), 10))
	return name, r.clone(ctx, name, template)
}

// copyingOf returns the clause of CREATE DATABASE to make the server copy files. Copying is half the work of writing
// each block to the log, which is the default since PostgreSQL 15, although it takes a checkpoint: 20 ms of processor
// time for a clone instead of 40 on a server without fsync. PostgreSQL 14 always copies files.
func copyingOf(ctx context.Context, conn *pgx.Conn) (string, error) {
	var clause string
	err := conn.QueryRow(ctx,
		"SELECT CASE WHEN current_setting('server_version_num')::integer < 150000 THEN '' ELSE ' STRATEGY FILE_COPY' END").Scan(&clause)
	return clause, err
}

func (r *run) clone(ctx context.Context, name, template string) error {
	if _, err := r.admin.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s%s", name, template, r.copying)); err != nil {
		return fmt.Errorf("clone database %s: %w", template, err)
	}
	return nil
}

func (r *run) drop(ctx context.Context, name string) error {
	if _, err := r.admin.Exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name)); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

func (r *run) template() string { return r.databaseName(r.hash, "template") }
func (r *run) shared() string   { return r.databaseName(r.hash, "shared") }

func (r *run) databaseName(key int32, rest string) string {
	return fmt.Sprintf("%s_%08x_%s", r.prefix, uint32(key), rest)
}

func (r *run) databaseURL(name string) string {
	u := *r.base
	u.Path, u.RawPath = "/"+name, ""
	return u.String()
}

func randomKey() int32 {
	var raw [4]byte
	rand.Read(raw[:]) // never fails
	return int32(binary.BigEndian.Uint32(raw[:]))
}

// migrationsKey hashes the names and texts of the migrations, and a text for all else the template depends on.
func migrationsKey(besides string) (int32, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, besides)
	files := schema.Migrations()
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
		return err
	})
	return int32(binary.BigEndian.Uint32(hash.Sum(nil))), err
}
