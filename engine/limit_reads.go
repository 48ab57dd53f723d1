package engine

import (
	"context"
	"encoding/binary"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// LimitState is a limit: the rule in force, and the declared one.
type LimitState struct {
	Name      string
	Namespace id.Namespace
	Units     int           // in force: that run at once, or start within Window; 0: nothing starts
	Window    time.Duration // in force; 0: it limits how many run at once
	WhenFull  WhenFull

	DeclaredUnits  int
	DeclaredWindow time.Duration
	SetAt          time.Time // when an operator set it; zero: the declared rule is in force
	ChangedAt      time.Time

	// Changes are the last 100 changes, the newest first. In lists they are left out.
	Changes []LimitChange
}

// LimitChange is a change of a limit.
type LimitChange struct {
	At       time.Time
	How      LimitChanged
	Units    int           // in force after it
	Window   time.Duration // in force after it; 0: none
	WhenFull WhenFull      // after it
	By       string        // of an operator: [LimitSetting.By]
}

// LimitChanged is a way in which a limit changes.
type LimitChanged string

// The ways in which a limit changes.
const (
	LimitDeclared LimitChanged = "declared" // by a program
	LimitSet      LimitChanged = "set"      // by an operator
	LimitReset    LimitChanged = "reset"    // by an operator
)

// LimitUse is a key of a limit and its use.
type LimitUse struct {
	Key          string
	InUse        int       // units of the executions that are running or may be claimed; of at most 1,001 of them
	Waiting      int       // executions that wait for it; 1,001 if there are more than 1,000
	WaitingSince time.Time // the longest of those counted; zero: none waits
	RoomAt       time.Time // when the window has room again, if that is known; zero otherwise
}

// DescribeLimit returns a limit with its last changes.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]. Two statements; takes no locks.
func (o Operator) DescribeLimit(ctx context.Context, name LimitName) (LimitState, error) {
	const op = "describe limit"
	if err := name.check(o.e); err != nil {
		return LimitState{}, core.Wrap(op, err)
	}
	row, err := o.e.c.Q.GetLimit(ctx, o.e.c.Reader(), db.GetLimitParams{Namespace: string(name.Namespace), Name: name.Name})
	if err != nil {
		return LimitState{}, core.Wrap(op, name.orNotFound(err))
	}
	s := limitFrom((*db.ListLimitsRow)(&row))
	changes, err := o.e.c.Q.ListLimitChanges(ctx, o.e.c.Reader(), db.ListLimitChangesParams{Namespace: string(name.Namespace), Name: name.Name})
	for i := range changes {
		c := &changes[i]
		s.Changes = append(s.Changes, LimitChange{
			At: time.UnixMilli(c.ChangedAtMs), How: LimitChanged(c.How), Units: int(c.Units), Window: milliseconds(c.WindowMs),
			WhenFull: WhenFull(c.WhenFull), By: c.ChangedBy,
		})
	}
	return s, core.Wrap(op, err)
}

func limitFrom(row *db.ListLimitsRow) LimitState {
	return LimitState{
		Name: row.Name, Namespace: id.Namespace(row.Namespace), Units: int(row.Units), Window: milliseconds(row.WindowMs),
		WhenFull: WhenFull(row.WhenFull), DeclaredUnits: int(row.DeclaredUnits), DeclaredWindow: milliseconds(row.DeclaredWindowMs),
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

// ListLimits returns a page of all limits, in the order of their namespaces and names. after is the [Page.Next] of the previous
// page, or "" for the first page; a limit of 0 or more than [MaxPage] means [MaxPage].
//
// Errors: [fferr.ErrInvalidInput]. One statement; takes no locks.
func (o Operator) ListLimits(ctx context.Context, after string, limit int) (Page[LimitState], error) {
	const op, list = "list limits", "limits"
	page, err := func() (page Page[LimitState], err error) {
		if limit, err = core.PageSize(limit); err != nil {
			return page, err
		}
		last, err := core.ReadCursor(list, after)
		if err != nil {
			return page, err
		}
		namespace, name, _ := strings.Cut(string(last), "\x00")
		rows, err := o.e.c.Q.ListLimits(ctx, o.e.c.Reader(), db.ListLimitsParams{
			AfterNamespace: namespace, AfterName: name, PageSize: int32(limit) + 1,
		})
		found := core.PageOf(rows, limit, func(row *db.ListLimitsRow) string {
			return core.CursorOf(list, []byte(row.Namespace+"\x00"+row.Name))
		})
		page.Next = found.Next
		for i := range found.Items {
			page.Items = append(page.Items, limitFrom(&found.Items[i]))
		}
		return page, err
	}()
	return page, core.Wrap(op, err)
}

// Limits iterates over the limits that [Operator.ListLimits] lists, a page at a time.
func (o Operator) Limits(ctx context.Context) iter.Seq2[LimitState, error] {
	return core.Pages(func(after string) (Page[LimitState], error) { return o.ListLimits(ctx, after, MaxPage) })
}

// ListLimitKeys returns a page of the keys of a limit that are in use or were lately, in no useful order. after is the
// [Page.Next] of the previous page, or "" for the first page. A page examines limit keys of all limits; 0 or more than
// [MaxPage] means [MaxPage]. It may be short or empty, with a cursor that continues after them. A limit that does not exist has
// none.
//
// Errors: [fferr.ErrInvalidInput]. One statement; takes no locks.
func (o Operator) ListLimitKeys(ctx context.Context, name LimitName, after string, limit int) (Page[LimitUse], error) {
	const op = "list keys of a limit"
	page, err := o.listLimitKeys(ctx, name, after, limit)
	return page, core.Wrap(op, err)
}

// LimitKeys iterates over the keys that [Operator.ListLimitKeys] lists, a page at a time.
func (o Operator) LimitKeys(ctx context.Context, name LimitName) iter.Seq2[LimitUse, error] {
	return core.Pages(func(after string) (Page[LimitUse], error) { return o.ListLimitKeys(ctx, name, after, MaxPage) })
}

func (o Operator) listLimitKeys(ctx context.Context, name LimitName, after string, limit int) (page Page[LimitUse], err error) {
	if err := name.check(o.e); err != nil {
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
	rows, err := o.e.c.Q.ListLimitKeys(ctx, o.e.c.Reader(), params)
	found := core.PageOf(rows, limit, func(row *db.ListLimitKeysRow) string {
		return core.CursorOf(list, append(binary.BigEndian.AppendUint16(nil, uint16(row.PartitionKey)), row.GateID.Bytes[:]...))
	})
	page.Next = found.Next
	for i := range found.Items {
		if row := &found.Items[i]; row.Found {
			page.Items = append(page.Items, LimitUse{
				Key: row.Key, InUse: int(row.InUse), Waiting: int(row.Waiting),
				WaitingSince: core.OptionalTime(positive(row.WaitingSinceMs)), RoomAt: core.OptionalTime(positive(row.NextAtMs)),
			})
		}
	}
	return page, err
}
