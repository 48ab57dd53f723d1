package limit

import (
	"context"
	"encoding/binary"
	"iter"
	"strings"
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
	InUse        int       // units of running and claimable executions, counting at most 1,001 executions
	Waiting      int       // waiting executions; 1,001 if there are more than 1,000
	WaitingSince time.Time // the longest wait among those counted; zero: none
	RoomAt       time.Time // when the window admits again, if known; zero otherwise
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

// List returns a page of all limits, in the order of namespaces and names. after is the [engine.Page.Next] of the previous
// page, or "" for the first page; a limit of 0 or more than [engine.MaxPage] means [engine.MaxPage].
//
// Errors: [fferr.ErrInvalidInput]. One statement; takes no locks.
func List(ctx context.Context, eng *engine.Engine, after string, limit int) (engine.Page[State], error) {
	const op, list = "list limits", "limits"
	c := core.Of(eng)
	page, err := func() (page engine.Page[State], err error) {
		if limit, err = core.PageSize(limit); err != nil {
			return page, err
		}
		last, err := core.ReadCursor(list, after)
		if err != nil {
			return page, err
		}
		namespace, name, _ := strings.Cut(string(last), "\x00")
		rows, err := c.Q.ListLimits(ctx, c.Reader(), db.ListLimitsParams{
			AfterNamespace: namespace, AfterName: name, PageSize: int32(limit) + 1,
		})
		found := core.PageOf(rows, limit, func(row *db.ListLimitsRow) string {
			return core.CursorOf(list, []byte(row.Namespace+"\x00"+row.Name))
		})
		page.Next = found.Next
		for i := range found.Items {
			page.Items = append(page.Items, stateOf(&found.Items[i]))
		}
		return page, err
	}()
	return page, core.Wrap(op, err)
}

// All iterates over the pages of [List].
func All(ctx context.Context, eng *engine.Engine) iter.Seq2[State, error] {
	return core.Pages(func(after string) (engine.Page[State], error) { return List(ctx, eng, after, engine.MaxPage) })
}

// ListKeys returns a page of the keys of a limit in use now or lately, in no useful order. after is the [engine.Page.Next] of
// the previous page, or "" for the first page. A page examines limit keys of all limits; 0 or more than [engine.MaxPage]
// means [engine.MaxPage]. A page may be short or empty, with a cursor for the rest. A limit that does not exist has no keys.
//
// Errors: [fferr.ErrInvalidInput]. One statement; takes no locks.
func ListKeys(ctx context.Context, eng *engine.Engine, name Name, after string, limit int) (engine.Page[Use], error) {
	const op = "list keys of a limit"
	page, err := listKeys(ctx, eng, name, after, limit)
	return page, core.Wrap(op, err)
}

// Keys iterates over the pages of [ListKeys].
func Keys(ctx context.Context, eng *engine.Engine, name Name) iter.Seq2[Use, error] {
	return core.Pages(func(after string) (engine.Page[Use], error) { return ListKeys(ctx, eng, name, after, engine.MaxPage) })
}

func listKeys(ctx context.Context, eng *engine.Engine, name Name, after string, limit int) (page engine.Page[Use], err error) {
	c := core.Of(eng)
	if err := name.check(c); err != nil {
		return page, err
	}
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	list := "limit keys " + string(name.Namespace) + "\x00" + name.Name
	last, err := core.ReadCursor(list, after)
	if err != nil {
		return page, err
	}
	params := db.ListLimitKeysParams{
		Namespace: string(name.Namespace), Name: name.Name,
		AfterPartitionKey: -1, AfterGateID: pgtype.UUID{Valid: true}, PageSize: int32(limit) + 1,
	}
	if last != nil {
		if len(last) != 2+16 {
			return page, core.Invalid("after", "is not a cursor")
		}
		params.AfterPartitionKey = int16(binary.BigEndian.Uint16(last))
		params.AfterGateID.Bytes = [16]byte(last[2:])
	}
	rows, err := c.Q.ListLimitKeys(ctx, c.Reader(), params)
	found := core.PageOf(rows, limit, func(row *db.ListLimitKeysRow) string {
		return core.CursorOf(list, append(binary.BigEndian.AppendUint16(nil, uint16(row.PartitionKey)), row.GateID.Bytes[:]...))
	})
	page.Next = found.Next
	for i := range found.Items {
		if row := &found.Items[i]; row.Found {
			page.Items = append(page.Items, Use{
				Key: row.Key, InUse: int(row.InUse), Waiting: int(row.Waiting),
				WaitingSince: core.OptionalTime(positive(row.WaitingSinceMs)), RoomAt: core.OptionalTime(positive(row.NextAtMs)),
			})
		}
	}
	return page, err
}
