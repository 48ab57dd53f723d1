package worker

import (
	"context"
	"strconv"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// HoldLimit lets no execution with a key of a limit start until an instant, in any process. An API that answers one
// handler with 429 and Retry-After then is spared by all of them:
//
//	if answer.StatusCode == http.StatusTooManyRequests {
//		again := time.Now().Add(retryAfter(answer))
//		if err := job.HoldLimit(ctx, engine.LimitKey{Name: "sync/api-key", Key: job.Args.APIKey}, again); err != nil {
//			return err
//		}
//		return job.Delay(time.Until(again)) // the execution itself waits for the limit, too
//	}
//
// The execution must have the limit, under any key. Other executions that run go on, and the ones that only have a place
// are put back. The instant is one of the database's clock, at most 30 days from now. If handlers hold the same key, the
// latest end counts; an instant that has passed ends the hold, also of others. HoldLimit lasts after a failure of the
// handler, and a retry without a pause does not wait for it: return [Job.Delay], or fail with a pause.
//
// limit.Hold does the same for other programs, and in a handler's transaction. A job for a test holds nothing.
//
// Errors: [fferr.ErrInvalidInput] naming the limit and the field, for a limit that the execution does not have, a key of
// more than [engine.MaxLimitKey] bytes, units, and an instant that is zero or too far ahead; [fferr.ErrNotFound] if the
// limit was deleted; [fferr.ErrContention]. A job whose lease is lost holds the key all the same.
func (j Job[In]) HoldLimit(ctx context.Context, key engine.LimitKey, until time.Time) error {
	if err := checkHold(key, until); err != nil {
		return core.Wrap(holdLimit, err)
	}
	if j.isForTest() {
		return nil
	}
	if j.eng == nil {
		return errNoWorker
	}
	_, err := repeat(ctx, j.recorder, func() (struct{}, error) { return struct{}{}, j.eng.HoldLimit(ctx, j.ID, key, until) })
	return err
}

const holdLimit = "hold limit"

// checkHold checks a hold without the database.
func checkHold(key engine.LimitKey, until time.Time) error {
	of := "limit " + strconv.Quote(key.Name)
	switch {
	case key.Name == "":
		return core.Invalid("limit", "has no name")
	case key.Units != 0:
		return core.Invalid(of+" units", "are set: a key is held as a whole")
	case until.IsZero():
		return core.Invalid(of+" until", "is zero")
	}
	if err := core.CheckText("limit", key.Name, engine.MaxLimitName); err != nil {
		return err
	}
	return core.CheckText(of+" key", key.Key, engine.MaxLimitKey)
}

func (e onEngine) HoldLimit(ctx context.Context, x id.ExecutionID, key engine.LimitKey, until time.Time) error {
	_, err := core.Of(e.Engine).HoldLimit(ctx, holdLimit, core.LimitHold{
		Limit: core.LimitID{Name: key.Name}, Key: key.Key, Until: until, By: "execution " + x.String(), Execution: &x,
	})
	return err
}
