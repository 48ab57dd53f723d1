// Package database makes the databases of a review: on the server of the tests (internal/pgserver), migrated by dbmate,
// copied from one another, and dropped when the review ends.
package database

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
)

// A database is named ff_review_<key>_<number>_<label>. The review holds the advisory lock (reviewsLock, key) of
// database postgres while it runs. So the next review recognises left-over databases and drops them.
const reviewsLock = 0x66667276

// fileCopySize is the size from which copying a database's files is faster than also writing to the log. A server with
// fsync off copies the files of any database, with half the work.
const fileCopySize = 256 << 20

// Server is a server with the databases of one review. Its methods may be called by several goroutines.
type Server struct {
	server  *pgserver.Server
	base    *url.URL
	tls     bool
	version int
	syncs   bool
	key     uint32
	log     io.Writer
	longest time.Duration // of a session of the project's SQL

	// The roles: see roles.go.
	role           string // of the tool's own session
	owner          string // of the project's objects
	super, creates bool
	login, builder login // of the project's SQL, and of base's for the cache; empty: the tool's own
	caching        bool  // see cache.go

	mu         sync.Mutex
	admin      *pgx.Conn
	created    int
	names      map[string]bool // databases not yet dropped
	logins     []string        // not yet dropped
	shared     []string        // roles whose lock the review holds
	proved     bool            // the login works
	extensions []Extension
}

// Container finds or runs a server in a container of the image and returns its superuser's URL; nil: containers are no
// source.
type Container func(ctx context.Context, image string) (serverURL string, err error)

// Start finds the server, or starts one, and drops the databases of killed reviews. It logs slow steps.
//
// FF_POSTGRES, FF_POSTGRES_VERSION and DATABASE_URL choose the server, as for tests. Errors hold no password.
func Start(ctx context.Context, container Container, log io.Writer) (*Server, error) {
	found, err := pgserver.Start(ctx, pgserver.Options{Purpose: pgserver.Tests, Container: container, Log: log})
	if err != nil {
		return nil, err
	}
	s := &Server{server: found, names: map[string]bool{}, log: log, longest: longestSession}
	if s.base, err = url.Parse(found.URL()); err != nil {
		return nil, errors.Join(errors.New("DATABASE_URL is not a URL"), found.Stop()) // the text may hold a password
	}
	if s.admin, err = pgx.Connect(ctx, s.url("postgres")); err != nil {
		return nil, errors.Join(err, found.Stop())
	}
	_, s.tls = s.admin.PgConn().Conn().(*tls.Conn)
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.admin.Close(ctx), found.Stop())
	}
	if err := s.makeOwner(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *Server) begin(ctx context.Context) error {
	err := s.admin.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, current_setting('fsync')::bool").Scan(&s.version, &s.syncs)
	if err != nil {
		return err
	}
	var key [4]byte
	rand.Read(key[:])
	s.key = binary.BigEndian.Uint32(key[:])
	if _, err := s.admin.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", reviewsLock, int32(s.key)); err != nil {
		return err
	}
	if err := s.readRole(ctx); err != nil {
		return err
	}
	if err := s.dropLeft(ctx); err != nil {
		return err
	}
	if !s.creates {
		return nil
	}
	return s.dropLeftRoles(ctx)
}

// dropLeft drops the databases and then the logins of killed reviews. It logs the remaining ones.
func (s *Server) dropLeft(ctx context.Context) error {
	return s.dropEach(ctx, s.dropAbandoned, `SELECT datname::text FROM pg_database WHERE datname ~ '^ff_review_[0-9a-f]{8}_'
		UNION ALL SELECT rolname::text FROM pg_roles WHERE $1 AND rolname ~ '^ff_review_[0-9a-f]{8}_(base_)?login$'`, s.creates)
}

// dropEach drops the names a query returns, and logs the remaining ones.
func (s *Server) dropEach(ctx context.Context, drop func(ctx context.Context, name string) error, query string, args ...any) error {
	rows, err := s.admin.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := drop(ctx, name); err != nil {
			s.stays(name, err)
		}
	}
	return ctx.Err()
}

// stays logs a leftover of a killed review, without ending the present one.
func (s *Server) stays(name string, err error) {
	if s.log != nil {
		fmt.Fprintf(s.log, "%s of a killed review stays: %v\n", name, err)
	}
}

// dropAbandoned drops a database or a login, unless its review still runs.
func (s *Server) dropAbandoned(ctx context.Context, name string) error {
	key, err := strconv.ParseUint(strings.Split(name, "_")[2], 16, 32)
	if err != nil {
		return err
	}
	var abandoned bool
	err = s.admin.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, $2)", reviewsLock, int32(uint32(key))).Scan(&abandoned)
	if err != nil || !abandoned {
		return err
	}
	drop := s.drop
	if strings.HasSuffix(name, "_login") { // no label of a database
		drop = s.dropRole
	}
	err = drop(ctx, name)
	_, unlocked := s.admin.Exec(ctx, "SELECT pg_advisory_unlock($1, $2)", reviewsLock, int32(uint32(key)))
	return errors.Join(err, unlocked)
}

// Version is the server's version in the form of server_version_num: 150004.
func (s *Server) Version() int { return s.version }

// Source says in a sentence which server was chosen and why, without a password.
func (s *Server) Source() string { return s.server.Source() }

func (s *Server) url(name string) string {
	u := *s.base
	u.Path, u.RawPath = "/"+name, ""
	return u.String()
}

// loginURL is the URL for the project's SQL.
func (s *Server) loginURL(l login, name string) string {
	u := *s.base
	u.Path, u.RawPath = "/"+name, ""
	u = s.as(l, u)
	return u.String()
}

// Database is a database of a review.
type Database struct {
	Name string
	// URL is for the project's SQL: the role has no rights outside the database. The URL holds the password.
	URL string

	server *Server
}

// Create makes an empty database. The label is part of the name, for a reader of the server's list meanwhile.
func (s *Server) Create(ctx context.Context, label string) (*Database, error) {
	d, err := s.create(ctx, label, "template0")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return d, s.prepare(ctx, d.Name, s.extensions)
}

// Copy copies the database of, which must have no sessions.
func (s *Server) Copy(ctx context.Context, of *Database, label string) (*Database, error) {
	return s.create(ctx, label, of.Name)
}

// strategy returns the clause of CREATE DATABASE for the way of copying the template.
func (s *Server) strategy(ctx context.Context, template string) (string, error) {
	const copyFiles = " STRATEGY file_copy"
	if s.version < 15_00_00 { // always copies files
		return "", nil
	}
	if !s.syncs {
		return copyFiles, nil
	}
	var size int64
	if err := s.admin.QueryRow(ctx, "SELECT pg_database_size($1::text)", template).Scan(&size); err != nil || size <= fileCopySize {
		return "", err
	}
	return copyFiles, nil
}

func (s *Server) create(ctx context.Context, label, template string) (*Database, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	strategy, err := s.strategy(ctx, template)
	if err != nil {
		return nil, err
	}
	s.created++
	name := fmt.Sprintf("ff_review_%08x_%d_%s", s.key, s.created, label)
	statement := fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s%s", pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize(), strategy)
	s.names[name] = true // also if ctx ends before the server answers
	if err := s.patiently(ctx, statement); err != nil {
		return nil, fmt.Errorf("create a database for %s: %w", label, err)
	}
	if s.login.name != "" {
		if _, err := s.admin.Exec(ctx, fmt.Sprintf("GRANT CREATE, CONNECT, TEMPORARY ON DATABASE %s TO %s", pgx.Identifier{name}.Sanitize(), s.owner)); err != nil {
			return nil, fmt.Errorf("create a database for %s: %w", label, err)
		}
	}
	return &Database{Name: name, URL: s.loginURL(s.login, name), server: s}, nil
}

// patiently runs a statement about a database without other users. A closed session takes a moment to end, and two
// copies of one template wait for each other.
func (s *Server) patiently(ctx context.Context, statement string) error {
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := s.admin.Exec(ctx, statement)
		if stateOf(err) != objectInUse || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Drop ends the sessions on the database, which it drops.
func (d *Database) Drop(ctx context.Context) error {
	d.server.mu.Lock()
	defer d.server.mu.Unlock()
	return d.server.drop(ctx, d.Name)
}

// Release leaves the database to [Server.Close], which drops all at once: each drop waits until the server has written
// the other databases to the disk. A large one is dropped at once.
func (d *Database) Release(ctx context.Context) error {
	d.server.mu.Lock()
	defer d.server.mu.Unlock()
	var size int64
	if err := d.server.admin.QueryRow(ctx, "SELECT pg_database_size($1::text)", d.Name).Scan(&size); err != nil || size <= fileCopySize {
		return err
	}
	return d.server.drop(ctx, d.Name)
}

func (s *Server) drop(ctx context.Context, name string) error {
	statement := dropStatement(name)
	_, err := s.admin.Exec(ctx, statement)
	if stateOf(err) == objectInUse && s.rollBackPrepared(ctx, name) == nil {
		_, err = s.admin.Exec(ctx, statement)
	}
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	delete(s.names, name)
	return nil
}

// Close drops all databases and releases the server, even if ctx has ended.
func (s *Server) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin.IsClosed() { // by a statement interrupted by ctx
		var err error
		if s.admin, err = pgx.Connect(ctx, s.url("postgres")); err != nil {
			return err
		}
	}
	s.dropTogether(ctx)
	var errs error
	for name := range s.names { // left by dropTogether
		errs = errors.Join(errs, s.drop(ctx, name))
	}
	return errors.Join(errs, s.dropRoles(ctx), s.admin.Close(ctx), s.server.Stop())
}

// dropTogether drops the databases in sessions side by side, as far as the server allows.
func (s *Server) dropTogether(ctx context.Context) {
	dropped := make(chan string, len(s.names))
	var dropping sync.WaitGroup
	for name := range s.names {
		dropping.Go(func() {
			conn, err := pgx.Connect(ctx, s.url("postgres"))
			if err != nil {
				return
			}
			defer func() { _ = conn.Close(ctx) }()
			if _, err := conn.Exec(ctx, dropStatement(name)); err == nil {
				dropped <- name
			}
		})
	}
	dropping.Wait()
	close(dropped)
	for name := range dropped {
		delete(s.names, name)
	}
}

func dropStatement(name string) string {
	return fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", pgx.Identifier{name}.Sanitize())
}
