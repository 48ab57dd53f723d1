package limit

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// State is a limit: the rule in force, and the declared rule.
type State struct {
	Name      string
	Namespace id.Namespace
	Units     int           // in force: run at once, or start within Window; 0: nothing starts
	Window    time.Duration // in force; 0: the limit counts running executions
	WhenFull  engine.WhenFull

	DeclaredUnits  int
	DeclaredWindow time.Duration
	SetAt          time.Time // when an operator set the limit; zero: the declared rule is in force
	ChangedAt      time.Time

	// Changes are the last 100 changes, the newest first. Lists leave out the changes.
	Changes []Change
}

// Change is a change of a limit.
type Change struct {
	At       time.Time
	How      How
	Units    int             // in force afterwards
	Window   time.Duration   // in force afterwards; 0: none
	WhenFull engine.WhenFull // afterwards
	By       string          // of an operator: [Setting.By]
}

// How is a way to change a limit.
type How string

// The ways to change a limit.
const (
	HowDeclared How = "declared" // by a program
	HowSet      How = "set"      // by an operator
	HowReset    How = "reset"    // by an operator
)

// Use is a key of a limit and its use.
type Use struct {
	Key          string
	InUse        int              // units of running and claimable executions, counting at most 1,001 executions
	Waiting      int              // waiting executions; 1,001 if there are more than 1,000
	WaitingSince time.Time        // the longest wait among those counted; zero: none
	Holders      []id.ExecutionID // executions with units in use, the longest first; at most five
	RoomAt       time.Time        // when the window admits again, if known; zero otherwise
	Hold         Holding          // in force, by an operator or "execution" and an id; zero: the key is not held
}

// Describe returns a limit with its last changes.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]. Two statements; takes no locks.
func Describe(ctx context.Context, eng *engine.Engine, name Name) (State, error) {
	const op = "describe limit"
	c := core.Of(eng)
	if err := name.check(c); err != nil {
		return State{}, core.Wrap(op, err)
	}
	row, err := c.Q.GetLimit(ctx, c.Reader(), db.GetLimitParams{Namespace: string(name.Namespace), Name: name.Name})
	if err != nil {
		return State{}, core.Wrap(op, name.orNotFound(err))
	}
	s := stateOf((*db.ListLimitsRow)(&row))
	changes, err := c.Q.ListLimitChanges(ctx, c.Reader(), db.ListLimitChangesParams{Namespace: string(name.Namespace), Name: name.Name})
	for i := range changes {
		change := &changes[i]
		s.Changes = append(s.Changes, Change{
			At: time.UnixMilli(change.ChangedAtMs), How: How(change.How), Units: int(change.Units), Window: milliseconds(change.WindowMs),
			WhenFull: engine.WhenFull(change.WhenFull), By: change.ChangedBy,
		})
	}
	return s, core.Wrap(op, err)
}

func stateOf(row *db.ListLimitsRow) State {
	return State{
		Name: row.Name, Namespace: id.Namespace(row.Namespace), Units: int(row.Units), Window: milliseconds(row.WindowMs),
		WhenFull: engine.WhenFull(row.WhenFull), DeclaredUnits: int(row.DeclaredUnits), DeclaredWindow: milliseconds(row.DeclaredWindowMs),
		SetAt: core.OptionalTime(positive(row.SetAtMs)), ChangedAt: time.UnixMilli(row.ChangedAtMs),
	}
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// positive returns n, or nil for 0.
func positive(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// All iterates over all limits, by namespace and name, reading a page at a time. Takes no locks.
func All(ctx context.Context, eng *engine.Engine) iter.Seq2[State, error] {
	c := core.Of(eng)
	return core.All("list limits", func(after *db.ListLimitsRow) ([]db.ListLimitsRow, error) {
		params := db.ListLimitsParams{PageSize: core.MaxPage}
		if after != nil {
			params.AfterNamespace, params.AfterName = after.Namespace, after.Name
		}
		return c.Q.ListLimits(ctx, c.Reader(), params)
	}, func(row *db.ListLimitsRow) (State, bool, error) { return stateOf(row), true, nil })
}

// firstKeys is the number of keys [Keys] reads first.
const firstKeys = 21

// Keys iterates over the keys of a limit in use now or lately, in no useful order. It reads 21 keys, then 1,000 at a time. A
// missing limit has no keys.
//
// Errors: [fferr.ErrInvalidInput]. Takes no locks.
func Keys(ctx context.Context, eng *engine.Engine, name Name) iter.Seq2[Use, error] {
	c := core.Of(eng)
	return core.AllFrom("list keys of a limit", firstKeys, func(after *db.ListLimitKeysRow, n int32) ([]db.ListLimitKeysRow, error) {
		if err := name.check(c); err != nil {
			return nil, err
		}
		params := db.ListLimitKeysParams{
			Namespace: string(name.Namespace), Name: name.Name,
			AfterPartitionKey: -1, AfterGateID: pgtype.UUID{Valid: true}, PageSize: n, NowMs: c.NowMs(),
		}
		if after != nil {
			params.AfterPartitionKey, params.AfterGateID = after.PartitionKey, after.GateID
		}
		return c.Q.ListLimitKeys(ctx, c.Reader(), params)
	}, func(row *db.ListLimitKeysRow) (Use, bool, error) {
		holders := make([]id.ExecutionID, len(row.HolderExecutionIDs))
		for i, partition := range row.HolderPartitionKeys {
			holders[i] = id.ExecutionIDFromRow(partition, id.ExecutionUUID(row.HolderExecutionIDs[i].Bytes))
		}
		use := Use{
			Holders: holders,
			Key:     row.Key, InUse: int(row.InUse), Waiting: int(row.Waiting),
			WaitingSince: core.OptionalTime(positive(row.WaitingSinceMs)), RoomAt: core.OptionalTime(positive(row.NextAtMs)),
		}
		if row.HoldUntilMs > 0 {
			use.Hold = Holding{Until: time.UnixMilli(row.HoldUntilMs), By: row.HoldBy}
		}
		return use, true, nil
	})
}

// Total is the use of a limit over its keys.
type Total struct {
	Name
	InUse   int  // units in use of the fullest key
	Waiting int  // executions waiting for any key
	Partial bool // the database has more admissions and waiting executions than were counted: both are lower bounds
}

// InUse returns the limits with units in use or with waiting executions, by namespace and name. It counts the admissions
// and the waiting executions of all limits, up to counted of both. 0 is [engine.MaxCounted]. With 60, it reads less than
// 1,000 buffers of vacuumed tables: it counts the executions waiting for up to 60 keys, up to ten times as many.
//
// Errors: [fferr.ErrInvalidInput]. One statement; takes no locks.
func InUse(ctx context.Context, eng *engine.Engine, counted int) ([]Total, error) {
	const op = "list limits in use"
	if counted < 0 || counted > engine.MaxCounted {
		return nil, core.Wrap(op, core.Invalid("counted", fmt.Sprintf("must be between 0 and %d", engine.MaxCounted)))
	}
	n := int32(cmp.Or(counted, engine.MaxCounted))
	c := core.Of(eng)
	rows, err := c.Q.ListLimitUse(ctx, c.Reader(), db.ListLimitUseParams{MaxCounted: n, MaxWaiting: min(10*n, engine.MaxCounted)})
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	all := make([]Total, len(rows))
	for i, row := range rows {
		all[i] = Total{
			Name:  Name{Namespace: id.Namespace(row.Namespace), Name: row.Name},
			InUse: int(row.InUse), Waiting: int(row.Waiting), Partial: row.Partial,
		}
	}
	return all, nil
}
