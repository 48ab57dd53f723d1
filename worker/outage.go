package worker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// The pauses before a call is repeated.
const (
	repeatFirst = 5 * time.Millisecond
	repeatMax   = time.Second
)

// maxCuts is how many connections in a row a call may lose without a reason from the server. A statement can end its
// own connection each time: by exceeding a timeout of the session, or by crashing the server's process.
const maxCuts = 10

// outages decides whether a call failed in an outage of the database and is to be repeated until the database is back.
type outages struct {
	pause backoff.Backoff
	cuts  int
}

func newOutages() outages { return outages{pause: backoff.Backoff{First: repeatFirst, Max: repeatMax}} }

// goesOn reports whether err, of a call whose context has not ended, comes from an outage. cut means that the connection of
// the call is lost, whatever err says.
func (o *outages) goesOn(err error, cut bool) bool {
	code := pgtx.SQLState(err)
	switch {
	case pgtx.IsClosed(err): // this program closed its pool
		return false
	case isShutdown(code), errors.Is(err, fferr.ErrUnavailable), !cut && errors.Is(err, context.DeadlineExceeded): // to connect
		o.cuts = 0
		return true
	case cut, isSessionEnd(code), code == "" && errors.Is(err, fferr.ErrTransport):
		o.cuts++
		return o.cuts < maxCuts
	}
	return false
}

// repeat makes a call whose repetition is safe, again and again in an outage, until ctx or the run ends.
func repeat[T any](ctx context.Context, r *recorder, call func() (T, error)) (T, error) {
	o := newOutages()
	for {
		result, err := call()
		switch {
		case err == nil:
			return result, nil
		case ctx.Err() != nil:
			return result, context.Cause(ctx)
		case r.hasStopped() || !o.goesOn(err, false):
			return result, err
		case !backoff.Wait(ctx, o.pause.Next()):
			return result, context.Cause(ctx)
		}
	}
}

// isShutdown reports whether the server, or a pooler before the server, is stopping or starting, or lost its
// connection.
func isShutdown(code string) bool {
	return code == "57P01" || code == "57P02" || code == "57P03" || strings.HasPrefix(code, "08")
}

// isSessionEnd reports whether the server has ended a session by one of its timeouts, or takes no writes, as after a failover.
func isSessionEnd(code string) bool {
	return code == "25P03" || code == "25P04" || code == "57P05" || code == sqlReadOnly
}

const sqlReadOnly = "25006"
