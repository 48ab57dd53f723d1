// Package server finds the Postgres server for a benchmark, creates databases on it and describes it.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgserver"
)

// prefix begins the names of a benchmark's databases. The next benchmark drops the databases of an interrupted one.
const prefix = "ffbench_"

// benchLock is an advisory lock the only benchmark on a server holds in its session.
const benchLock = 0x66666265

// Server is a Postgres server reserved for this benchmark.
type Server struct {
	url   *url.URL
	admin *pgx.Conn
	own   *pgserver.Server // nil if the caller named a server
	made  []string
}

// Start connects to the server at databaseURL. If that is empty, it finds or starts a durable one as [pgserver.Start]
// does, of the given major version unless that is 0. It refuses a server without durable commits, and one with another
// benchmark.
func Start(ctx context.Context, databaseURL string, major int, log io.Writer) (*Server, error) {
	s := &Server{}
	if databaseURL == "" {
		own, err := pgserver.Start(ctx, pgserver.Options{Purpose: pgserver.Demo, Major: major, Log: log})
		if err != nil {
			return nil, err
		}
		s.own = own
		databaseURL = own.URL()
	}
	if err := s.reserve(ctx, databaseURL); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func (s *Server) reserve(ctx context.Context, databaseURL string) error {
	var err error
	if s.url, err = url.Parse(databaseURL); err != nil || s.url.Host == "" {
		return errors.New("the database URL is not of the form postgres://user:password@host:port/database")
	}
	if s.admin, err = pgx.Connect(ctx, databaseURL); err != nil {
		return fmt.Errorf("connect to %s: %w", s.url.Redacted(), err)
	}
	var reserved, durable bool
	err = s.admin.QueryRow(ctx, `
		select
			pg_try_advisory_lock($1),
			current_setting('fsync')::boolean
				and current_setting('full_page_writes')::boolean
				and current_setting('synchronous_commit') <> 'off'`, benchLock).Scan(&reserved, &durable)
	switch {
	case err != nil:
		return err
	case !reserved:
		return errors.New("another benchmark runs on this server")
	case !durable:
		return errors.New("fsync, full_page_writes or synchronous_commit is off on this server: its figures would mean nothing")
	}
	return nil
}

// Create makes an empty database and returns its URL.
func (s *Server) Create(ctx context.Context, name string) (string, error) {
	name = prefix + name
	if err := s.drop(ctx, name); err != nil {
		return "", err
	}
	if _, err := s.admin.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize()); err != nil {
		return "", err
	}
	s.made = append(s.made, name)
	u := *s.url
	u.Path = "/" + name
	return u.String(), nil
}

func (s *Server) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
	return err
}

// Stop drops the databases and, if this benchmark started the server, stops it.
func (s *Server) Stop(ctx context.Context) error {
	var errs []error
	if s.admin != nil {
		for _, name := range s.made {
			errs = append(errs, s.drop(ctx, name))
		}
		errs = append(errs, s.admin.Close(ctx))
	}
	if s.own != nil {
		errs = append(errs, s.own.Stop())
	}
	return errors.Join(errs...)
}
