package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// LimitSetting is an operator's setting of a limit.
type LimitSetting struct {
	Units  int           // 0 to [MaxLimitUnits]; 0: nothing starts
	Window time.Duration // of a rate alone, as in [Rate]; 0: the declared one
	By     string        // the operator's name, for [LimitState.Changes]; at most 1,024 bytes
}

// SetLimit changes a limit for all its keys, until [Operator.ResetLimit]. Declarations of programs don't count until then,
// unless they turn a concurrency into a rate or the reverse. Running executions go on, even if they are more than the limit.
//
// Workers find the change at once, or without a listener within a second.
//
// Errors: [fferr.ErrNotFound] for a limit that was not declared; [fferr.ErrInvalidInput] naming the field;
// [fferr.ErrContention]. Transaction: one statement; locks the limit. Safe to repeat.
func (o Operator) SetLimit(ctx context.Context, name LimitName, to LimitSetting) error {
	const op = "set limit"
	if to.Units < 0 || to.Units > MaxLimitUnits {
		return core.Wrap(op, core.Invalid("Units", fmt.Sprintf("are %d, not 0 to %d", to.Units, MaxLimitUnits)))
	}
	rule := Concurrency[struct{}](max(to.Units, 1)).rule
	if to.Window != 0 {
		rule = Rate[struct{}](max(to.Units, 1), to.Window).rule
	}
	if reason := rule.mistake(); reason != "" {
		return core.Wrap(op, core.Invalid("Window", reason))
	}
	return o.setLimit(ctx, op, name, db.SetLimitParams{Units: int64(to.Units), WindowMs: rule.windowMs, ChangedBy: to.By})
}

// ResetLimit restores the declared limit. by is as in [LimitSetting].
//
// Errors: as [Operator.SetLimit]. Transaction: one statement; locks the limit. Safe to repeat.
func (o Operator) ResetLimit(ctx context.Context, name LimitName, by string) error {
	return o.setLimit(ctx, "reset limit", name, db.SetLimitParams{Units: -1, ChangedBy: by})
}

func (o Operator) setLimit(ctx context.Context, op string, name LimitName, params db.SetLimitParams) error {
	e := o.e
	if err := name.check(e); err != nil {
		return core.Wrap(op, err)
	}
	if err := core.CheckText("By", params.ChangedBy, core.MaxFreeText); err != nil {
		return core.Wrap(op, err)
	}
	params.Namespace, params.Name, params.NowMs = string(name.Namespace), name.Name, e.c.NowMs()
	missing := false
	fits, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, due *core.Notifications) (bool, error) {
		due.Gated()
		fits, err := e.c.Q.SetLimit(ctx, conn, params)
		if missing = core.IsNoRow(err); missing {
			err = nil
		}
		return fits, err
	})
	switch {
	case err != nil:
		return err
	case missing:
		return core.Wrap(op, name.notFound())
	case !fits:
		return core.Wrap(op, core.Invalid("Window", "is set, but "+strconv.Quote(name.Name)+" limits what runs at once"))
	}
	return nil
}

// DeleteLimit deletes a limit with its settings and changes. Nothing limits its executions then: those that wait for it are let
// in. A kind that still declares the limit declares it again within a minute of a creation, and [Operator.DeclareLimits] does
// so at once. Executions that run keep counting in it. Once the call has returned, nothing is admitted by the limit.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: two statements; locks the limit.
func (o Operator) DeleteLimit(ctx context.Context, name LimitName) error {
	const op = "delete limit"
	e := o.e
	if err := name.check(e); err != nil {
		return core.Wrap(op, err)
	}
	limit := limitID{string(name.Namespace), name.Name}
	_, err := core.InTx(ctx, e.c, op, func(tx *core.Txn) (struct{}, error) {
		n, err := e.c.Q.LockLimit(ctx, tx, db.LockLimitParams{Namespace: limit.namespace, Name: limit.name})
		switch {
		case err != nil:
			return struct{}{}, err
		case n == 0:
			return struct{}{}, name.notFound()
		}
		tx.Due.Gated()
		return struct{}{}, e.c.Q.DropLimit(ctx, tx, db.DropLimitParams{Namespace: limit.namespace, Name: limit.name})
	})
	if err == nil {
		e.limits.forget(limit)
	}
	return err
}

// DeclareLimits declares limits for executions whose kind has none, when a program starts: new ones are created, and changed
// ones are changed. [Operator.DeleteLimit] deletes one. While two versions of a program run side by side, the last call counts.
// An operator's setting stays in force: see [Operator.SetLimit].
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: one statement; locks the limits in the
// order of their names. Safe to repeat: unchanged limits are not written.
func (o Operator) DeclareLimits(ctx context.Context, limits ...LimitSpec) error {
	const op = "declare limits"
	e := o.e
	rules := make(map[limitID]limitRule, len(limits))
	for i := range limits {
		rule, err := limits[i].check(e)
		if err != nil {
			return core.Wrap(op, err)
		}
		limit := limitID{string(limits[i].Namespace), limits[i].Name}
		if _, twice := rules[limit]; twice {
			return core.Wrap(op, core.Invalid("Limits "+strconv.Quote(limit.name), "is declared twice"))
		}
		rules[limit] = rule
	}
	_, err := core.InTx(ctx, e.c, op, func(tx *core.Txn) (struct{}, error) { return struct{}{}, e.declare(ctx, tx, rules) })
	if err == nil && e.c.Tx == nil {
		for limit, rule := range rules {
			e.limits.add(limit, rule, e.c.ProcessTime())
		}
	}
	return err
}
