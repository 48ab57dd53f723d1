// Package limit operates limits: how many executions run at once or start within a window, by a key. A program declares
// limits with a kind ([engine.Kind.Limits]) or, for executions of several kinds, by [Declare]. An operator looks at a limit
// by [Describe] and at the use of each key by [Keys], changes the limit by [Set] until [Reset], stops a key for a while by
// [Hold], and deletes a limit by [Delete].
package limit

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Spec declares a limit for executions whose kind has none: see [engine.ExecutionSpec.Limits].
type Spec struct {
	Name      string       // unique in the namespace; at most [engine.MaxLimitName] bytes
	Namespace id.Namespace // default: the engine's
	Units     int          // run at once, or start within Window; 1 to [engine.MaxLimitUnits]

	// Window makes the limit a rate, as [engine.Rate]. Default 0: the limit counts running executions, as
	// [engine.Concurrency].
	Window time.Duration

	WhenFull engine.WhenFull // default [engine.WaitForRoom]
}

// check checks a spec, fills in defaults, and returns the rule.
func (s *Spec) check(c *core.Core) (rule core.LimitRule, err error) {
	name := Name{Namespace: s.Namespace, Name: s.Name}
	if err := name.check(c); err != nil {
		return rule, err
	}
	s.Namespace = name.Namespace
	rule = core.Concurrency(s.Units)
	if s.Window != 0 {
		rule = core.Rate(s.Units, s.Window)
	}
	rule.WhenFull = string(cmp.Or(s.WhenFull, engine.WaitForRoom))
	return rule, rule.Check("Limits", s.Name)
}

// Name identifies a limit.
type Name struct {
	Namespace id.Namespace // default: the engine's
	Name      string       // as in [engine.LimitKey.Name]
}

func (n *Name) check(c *core.Core) (err error) {
	if n.Namespace, err = c.NamespaceOr(n.Namespace); err != nil {
		return err
	}
	if n.Name == "" {
		return core.Invalid("Name", "is empty")
	}
	return core.CheckText("Name", n.Name, engine.MaxLimitName)
}

func (n *Name) notFound() error { return &fferr.NotFoundError{Entity: "limit", ID: n.Name} }

func (n *Name) orNotFound(err error) error {
	if core.IsNoRow(err) {
		return n.notFound()
	}
	return err
}

// Setting is an operator's setting of a limit.
type Setting struct {
	Units  int           // 0 to [engine.MaxLimitUnits]; 0: nothing starts
	Window time.Duration // only of a rate, as in [engine.Rate]; 0: the declared window
	By     string        // the operator's name, for [State.Changes]; at most 1,024 bytes
}

// Set changes a limit for all keys, until [Reset]. Until then declarations of programs don't count, unless they turn a
// concurrency into a rate or the reverse. Running executions continue, even above the limit.
//
// Workers apply the change at once, or without a listener within a second.
//
// Errors: [fferr.ErrNotFound] for an undeclared limit; [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention].
// Transaction: one statement; locks the limit. Safe to repeat.
func Set(ctx context.Context, eng *engine.Engine, name Name, to Setting) error {
	const op = "set limit"
	if to.Units < 0 || to.Units > engine.MaxLimitUnits {
		return core.Wrap(op, core.Invalid("Units", fmt.Sprintf("are %d, not 0 to %d", to.Units, engine.MaxLimitUnits)))
	}
	rule := core.Concurrency(max(to.Units, 1))
	if to.Window != 0 {
		rule = core.Rate(max(to.Units, 1), to.Window)
	}
	if reason := rule.Mistake(); reason != "" {
		return core.Wrap(op, core.Invalid("Window", reason))
	}
	return set(ctx, eng, op, name, db.SetLimitParams{Units: int64(to.Units), WindowMs: rule.WindowMs, ChangedBy: to.By})
}

// Reset restores the declared limit. by is as in [Setting].
//
// Errors: as [Set]. Transaction: one statement; locks the limit. Safe to repeat.
func Reset(ctx context.Context, eng *engine.Engine, name Name, by string) error {
	return set(ctx, eng, "reset limit", name, db.SetLimitParams{Units: -1, ChangedBy: by})
}

func set(ctx context.Context, eng *engine.Engine, op string, name Name, params db.SetLimitParams) error {
	c := core.Of(eng)
	if err := name.check(c); err != nil {
		return core.Wrap(op, err)
	}
	if err := core.CheckText("By", params.ChangedBy, core.MaxFreeText); err != nil {
		return core.Wrap(op, err)
	}
	params.Namespace, params.Name, params.NowMs = string(name.Namespace), name.Name, c.NowMs()
	missing := false
	fits, err := core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) (bool, error) {
		due.Gated()
		fits, err := c.Q.SetLimit(ctx, conn, params)
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

// Delete deletes a limit with its settings and changes. Executions waiting for the limit are then let in. A kind still
// declaring the limit declares it again within a minute of a creation, and [Declare] does so at once. Running executions keep
// counting in it. After the call nothing is admitted by the limit.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: two statements; locks the limit.
func Delete(ctx context.Context, eng *engine.Engine, name Name) error {
	const op = "delete limit"
	c := core.Of(eng)
	if err := name.check(c); err != nil {
		return core.Wrap(op, err)
	}
	limit := core.LimitID{Namespace: string(name.Namespace), Name: name.Name}
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (struct{}, error) {
		n, err := c.Q.LockLimit(ctx, tx, db.LockLimitParams{Namespace: limit.Namespace, Name: limit.Name})
		switch {
		case err != nil:
			return struct{}{}, err
		case n == 0:
			return struct{}{}, name.notFound()
		}
		tx.Due.Gated()
		return struct{}{}, c.Q.DropLimit(ctx, tx, db.DropLimitParams{Namespace: limit.Namespace, Name: limit.Name})
	})
	if err == nil {
		c.Limits.Forget(limit)
	}
	return err
}

// Declare declares limits for executions whose kind has none, when a program starts: new limits are created, and changed
// limits are changed. [Delete] deletes a limit. While two versions of a program run side by side, the last call counts. An
// operator's setting stays in force: see [Set].
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: one statement; locks the limits in
// the order of their names. Safe to repeat: unchanged limits are not written.
func Declare(ctx context.Context, eng *engine.Engine, limits ...Spec) error {
	const op = "declare limits"
	c := core.Of(eng)
	rules := make(map[core.LimitID]core.LimitRule, len(limits))
	for i := range limits {
		rule, err := limits[i].check(c)
		if err != nil {
			return core.Wrap(op, err)
		}
		limit := core.LimitID{Namespace: string(limits[i].Namespace), Name: limits[i].Name}
		if _, twice := rules[limit]; twice {
			return core.Wrap(op, core.Invalid("Limits "+strconv.Quote(limit.Name), "is declared twice"))
		}
		rules[limit] = rule
	}
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (struct{}, error) { return struct{}{}, c.DeclareLimits(ctx, tx, rules) })
	if err == nil && c.Tx == nil {
		for limit, rule := range rules {
			c.Limits.Add(limit, rule, c.ProcessTime())
		}
	}
	return err
}
