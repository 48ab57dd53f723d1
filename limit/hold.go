package limit

import (
	"context"
	"strconv"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxHold is the longest time from now to [Holding.Until].
const MaxHold = core.MaxHold

// Holding says how long to hold a key of a limit.
type Holding struct {
	// Until is when the hold ends, by the clock of the database, to the millisecond, at most [MaxHold] from now. Zero
	// and instants that have passed end the hold now.
	Until time.Time

	By string // the operator's name, for [Use.Hold]; at most 1,024 bytes
}

// Hold lets no execution with a key of a limit start until an instant, in any process: an API has asked for a pause, or
// a tenant's database is being moved. Executions that run go on, and others with a place are put back. They wait as
// for a full limit, and nothing is cancelled, whatever [engine.WhenFull] says. Other keys are not affected.
//
// If the key is held already, the later end stays: Hold never shortens a hold, but can end it. It returns the end in
// force, zero if the key is not held afterwards. The key need not be in use yet, and the empty key is a key too.
//
// Some executions with the key may still start during a hold: with a place, if another transaction such as a claim locks
// the execution during the call; and those that keep their place because they lose their lease or are retried without a
// pause.
//
// Handlers use Job.HoldLimit of package worker.
//
// Errors: [fferr.ErrNotFound] for an undeclared limit; [fferr.ErrInvalidInput] naming the field;
// [fferr.ErrContention], in the caller's transaction above READ COMMITTED also if something was admitted since its
// snapshot. Transaction: one statement that locks the key, and one for each 1,000 executions put back; in the caller's
// transaction the key admits nothing until the end. Safe to repeat.
func Hold(ctx context.Context, eng *engine.Engine, name Name, key string, h Holding) (time.Time, error) {
	const op = "hold limit"
	c := core.Of(eng)
	if err := name.check(c); err != nil {
		return time.Time{}, core.Wrap(op, err)
	}
	if err := core.CheckText("limit "+strconv.Quote(name.Name)+" key", key, engine.MaxLimitKey); err != nil {
		return time.Time{}, core.Wrap(op, err)
	}
	if err := core.CheckText("By", h.By, core.MaxFreeText); err != nil {
		return time.Time{}, core.Wrap(op, err)
	}
	return c.HoldLimit(ctx, op, core.LimitHold{
		Limit: core.LimitID{Namespace: string(name.Namespace), Name: name.Name}, Key: key, Until: h.Until, By: h.By,
	})
}
