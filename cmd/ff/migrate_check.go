package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/schema"
)

// verdict is the result of `ff migrate check`.
type verdict string

const (
	fit         verdict = "fit"
	pending     verdict = "pending"
	tooNew      verdict = "too_new"
	unreachable verdict = "unreachable"
	unfit       verdict = "unfit"
)

// verdictCodes maps verdicts to exit codes.
var verdictCodes = map[verdict]int{
	fit: exitDone, unfit: exitDatabase, pending: exitPending, tooNew: exitTooNew, unreachable: exitUnreachable,
}

// checkError reports a failed check. The exit code is the verdict's.
type checkError struct {
	verdict
	err error
}

func (e *checkError) Error() string { return e.err.Error() }
func (e *checkError) Unwrap() error { return e.err }

func (a *app) migrateCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether this version can work on a database, by exit code",
		Long: `check is for deploy pipelines. It changes nothing, and its exit code says whether programs of this
version can work on the database:

  0    they can
  4    they cannot: the login is refused, the database does not exist, or it is read-only, dirty, distributed,
       not this library's, migrated by an unreleased version, or in need of "ff migrate repair"
  5    migrations are pending: run "ff migrate up" or "ff migrate adopt" first
  6    a newer version migrated it, and this one can no longer work on it
  7    no server answers, or it accepts no connection

Usage errors and interruption have the exit codes of all commands.`,
		Example: `  ff migrate check || exit
  ff migrate check --json | jq -r .verdict`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			databaseURL, err := a.requireDatabase()
			if err != nil {
				return err
			}
			state, err := schema.Status(ctx, databaseURL, a.schemaOptions())
			if err == nil {
				err = state.Err
			}
			if asJSON {
				if err := a.writeJSON(newMigrationCheck(state, err)); err != nil {
					return err
				}
			}
			if err != nil {
				return &checkError{verdict: verdictOf(err), err: err}
			}
			if asJSON {
				return nil
			}
			for _, warning := range state.Warnings {
				fmt.Fprintf(a.stderr, "Warning: %s\n", warning)
			}
			_, err = fmt.Fprintf(a.stdout, "The database is at version %s; this ff, of version %s, can work on it.\n", state.Version, schema.Version)
			return err
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verdictOf returns the verdict for an error of Check.
func verdictOf(err error) verdict {
	is := func(sentinels ...error) bool {
		for _, sentinel := range sentinels {
			if errors.Is(err, sentinel) {
				return true
			}
		}
		return false
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	switch pgErr, ok := errors.AsType[*pgconn.PgError](err); {
	case err == nil:
		return fit
	case is(fferr.ErrTooNew):
		return tooNew
	case is(fferr.ErrNotMigrated, schema.ErrNotAdopted, schema.ErrTooOld):
		return pending
	case is(schema.ErrNoDatabase, fferr.ErrDenied):
		return unfit
	case connecting, network, ok && (strings.HasPrefix(pgErr.Code, "08") || strings.HasPrefix(pgErr.Code, "57P0")):
		return unreachable
	}
	return unfit
}

// migrationCheck is the JSON of `ff migrate check`.
type migrationCheck struct {
	Verdict  verdict  `json:"verdict"` // fit, pending, too_new, unreachable or unfit
	Version  string   `json:"version"` // of the database; empty for none
	Wanted   string   `json:"wanted"`  // the version of this ff
	Pending  []string `json:"pending"` // migrations
	Problem  string   `json:"problem,omitempty"`
	Warnings []string `json:"warnings"`
}

func newMigrationCheck(state schema.State, err error) migrationCheck {
	check := migrationCheck{
		Verdict:  verdictOf(err),
		Version:  state.Version,
		Wanted:   schema.Version,
		Pending:  []string{},
		Warnings: append([]string{}, state.Warnings...),
	}
	for _, m := range state.Migrations {
		if !m.Applied {
			check.Pending = append(check.Pending, m.Name)
		}
	}
	if err != nil {
		check.Problem, _ = inWords(err)
	}
	return check
}
