package core

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// A Creator prepares creations of executions by packages above the engine. S is the engine's ExecutionSpec, which
// package core can't name. The engine's own methods create the executions.
type Creator[S any] interface {
	// Template checks a spec for later creations, any number of times, and returns the spec's stored form. A spec with
	// an id, a flow, a key or an instant is refused.
	Template(spec S) (Template, error)

	// Spec returns the spec of an execution of a template, whose tags may begin with "ffx.".
	Spec(t Template) (S, error)

	// Register checks that the limits of specs exist. register then registers, in a transaction, the lanes, the
	// retention, and the limits declared by the kinds of the specs.
	Register(ctx context.Context, specs []S) (register func(context.Context, db.DBTX) error, err error)

	// RememberLanes notes lanes registered by a commit. Later creations of this process don't register the lanes again.
	RememberLanes(lanes []string)

	// Copy inserts a copy of a stored execution in a transaction, with the stored policy and capabilities, and without
	// checking limits: if a limit has fewer units by now, the copy takes all units. Then Copy calls fill with the copy,
	// and registers the lane and the retention. If the copy's id exists, Copy does nothing and returns an empty state.
	Copy(ctx context.Context, tx *Txn, of Stored, fill func(id.ExecutionID) error) (id.ExecutionID, state.PublicState, error)

	// Order returns the unique key and the id of the sequence of an execution created now, each NULL if spec has none.
	Order(spec S, nowMs int64) (unique, sequence pgtype.UUID, err error)
}

// CreatorOf returns the creator of an engine, bound to the same pool or transaction.
func CreatorOf[S any](c *Core) Creator[S] { return c.creator(c).(Creator[S]) }

// SetCreator sets the function that returns the creator bound to a core.
func (c *Core) SetCreator(creator func(*Core) any) { c.creator = creator }

// SetSnapshot sets the function that decodes a row of [db.Queries.GetExecution] into the engine's ExecutionSnapshot, which this
// package can't name.
func (c *Core) SetSnapshot(snapshot func(id.ExecutionID, *db.GetExecutionRow) (any, error)) {
	c.snapshot = snapshot
}

// SnapshotOf decodes a row of [db.Queries.GetExecution] into S, the engine's ExecutionSnapshot.
func SnapshotOf[S any](c *Core, x id.ExecutionID, row *db.GetExecutionRow) (*S, error) {
	s, err := c.snapshot(x, row)
	if err != nil {
		return nil, err
	}
	return s.(*S), nil
}

// A Template is an execution to create, in the form of columns.
type Template struct {
	Namespace, Lane, Kind string
	Payload               []byte
	PayloadEncoding       string
	Priority              int32
	Creator               string
	Tags                  map[string]string
	Budgets               []id.BudgetID // sorted
	QuotaPolicy           *id.QuotaPolicyID

	// Documents, empty if there is none.
	Policy, Unique, Sequence, Limits, Fair string
}

// Stored is a stored execution to copy. The copy is in no sequence, not unique and not fair.
type Stored struct {
	Template
	ID           id.ExecutionID // of the copy; zero for a new one
	Capabilities string         // separated by commas; with a policy
}
