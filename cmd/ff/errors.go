package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/demo"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/schema"
)

var errInterrupted = errors.New("interrupted")

// usageError is an error in the command line. If next is empty, the next step is to read the help.
type usageError struct{ problem, next string }

func (e *usageError) Error() string { return e.problem }

// stepError is an error with its own next step.
type stepError struct {
	error
	next string
	code int
}

func (e *stepError) Unwrap() error { return e.error }

// nextSteps maps errors to the user's next step.
var nextSteps = []struct {
	err  error
	code int
	next string
}{
	{schema.ErrNoDatabase, exitDatabase, "create it, or correct the database URL"},
	{fferr.ErrNotMigrated, exitDatabase, "run `ff migrate up`"},
	{schema.ErrNotAdopted, exitDatabase, "run `ff migrate adopt`"},
	{schema.ErrPartitions, exitDatabase, "run `ff migrate adopt` with the partition counts that FlowFabric used"},
	{schema.ErrDifferent, exitDatabase, "stop all programs that write to the database, and see docs/database.md for the way back"},
	{schema.ErrTooOld, exitDatabase, "run `ff migrate up`"},
	{fferr.ErrTooNew, exitDatabase, "use the version of ff that migrated it, or a newer one"},
	{schema.ErrDirty, exitDatabase, "repair the migration that FlowFabric recorded as failed"},
	{schema.ErrForeign, exitDatabase, "choose another schema with --schema"},
	{fferr.ErrDistributed, exitDatabase, "make its tables local with undistribute_table, or choose another schema with --schema"},
	{schema.ErrUnreleased, exitDatabase, "copy the data you need, drop the schema and run `ff migrate up`"},
	{fferr.ErrEncoding, exitDatabase, "create a database with ENCODING 'UTF8' TEMPLATE template0"},
	{fferr.ErrUnsupportedServer, exitDatabase, "use PostgreSQL, or a service that is PostgreSQL"},
	{schema.ErrMoved, exitDatabase, "run `ff migrate repair`"},
	{fferr.ErrReadOnly, exitDatabase, "connect to the primary server"},
	{fferr.ErrDenied, exitDatabase, "grant the user the right, see `ff migrate grants`, or name another user in the database URL"},
	{fferr.ErrCompleted, exitFailed, "pass --completed to repeat its effects"},
	{fferr.ErrNotFound, exitNotFound, "check the id, the database URL and --schema; retention may have deleted it"},
	{fferr.ErrNotEnded, exitFailed, "cancel it first, or wait for its end"},
	{fferr.ErrEnded, exitFailed, "it needs nothing more; `ff execution retry` runs it again"},
	{fferr.ErrNotEligible, exitFailed, "look at it with `ff execution show`"},
	{fferr.ErrMaxReplays, exitFailed, "create another execution"},
	{fferr.ErrFlowTerminal, exitFailed, "create another flow"},
	{fferr.ErrContention, exitFailed, "try again"},
	{demo.ErrNoToolchain, exitFailed, "install Go from https://go.dev/dl, or add its bin folder to PATH"},
}

// inWords converts an error to one sentence with the next step, and an exit code.
func inWords(err error) (sentence string, code int) {
	if errors.Is(err, errInterrupted) {
		return "interrupted.", exitInterrupted
	}
	if usage, ok := errors.AsType[*usageError](err); ok {
		return oneLine(err) + ": " + usage.next + ".", exitUsage
	}
	if step, ok := errors.AsType[*stepError](err); ok {
		return oneLine(err) + ": " + step.next + ".", step.code
	}
	if check, ok := errors.AsType[*checkError](err); ok {
		sentence, _ := inWords(check.err)
		return sentence, verdictCodes[check.verdict]
	}
	connectErr, connecting := errors.AsType[*pgconn.ConnectError](err)
	if connecting && errors.Is(err, fferr.ErrDenied) {
		return explainConnect(connectErr), exitDatabase
	}
	for _, step := range nextSteps {
		if errors.Is(err, step.err) {
			return oneLine(err) + ": " + step.next + ".", step.code
		}
	}
	if connecting {
		return explainConnect(connectErr), exitDatabase
	}
	return oneLine(err) + ".", exitFailed
}

func explainConnect(err *pgconn.ConnectError) string {
	server := net.JoinHostPort(err.Config.Host, fmt.Sprint(err.Config.Port))
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case "28P01", "28000":
			return fmt.Sprintf("the server at %s refuses the login (%s): correct the user or the password in the database URL.",
				server, pgErr.Message)
		case "42501":
			return fmt.Sprintf("the server at %s refuses the user (%s): grant it the right, or name another user in the database URL.",
				server, pgErr.Message)
		case "3D000":
			return fmt.Sprintf("%s: create it, or correct the database URL.", pgErr.Message)
		}
		return fmt.Sprintf("the server at %s accepts no connection (%s): try again later.", server, pgErr.Message)
	}
	reason := "no answer"
	if netErr, ok := errors.AsType[*net.OpError](err); ok {
		reason = netErr.Err.Error()
	} else if !errors.Is(err, context.DeadlineExceeded) {
		reason = oneLine(errors.Unwrap(err))
	}
	return fmt.Sprintf("no connection to the server at %s (%s): start it, or correct the database URL.", server, reason)
}

// oneLine returns the error's text without line breaks, a leading package name and a final full stop.
func oneLine(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.TrimSuffix(strings.TrimPrefix(text, "schema: "), ".")
}
