package engine

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// admissible reports whether a creation can begin with its places in limits. With a quota policy or budgets, or for fair
// work, admission is left to the gate.
func (c *creation) admissible() bool {
	return c.minted && len(c.gates.limits) > 0 && len(c.gates.budgets) == 0 && c.quota == "" && c.place.Ns == 0 && c.prompt()
}

// anyAdmissible reports whether any creation is admissible.
func anyAdmissible(creations []creation) bool {
	return slices.ContainsFunc(creations, func(c creation) bool { return c.admissible() })
}

// createAdmitted creates executions without keys, outside flows and on known lanes, some with limits. If all limits of an
// execution have free places, and nothing waits there, the execution begins admitted and is claimable at once; the gate
// admits the others, and decides at limits locked by another transaction. A caller's transaction never does so, because
// the limits stay locked until its end.
func (e *Engine) createAdmitted(ctx context.Context, op string, creations []creation) ([]fferr.Outcome[Created], error) {
	if e.c.Tx != nil || !anyAdmissible(creations) || slices.ContainsFunc(creations, creation.needsKeys) {
		return nil, nil
	}
	r := creationRun{creations: creations}
	e.deal(&r)
	fresh := r.fresh()
	for first := true; ; first = false {
		if err := e.ensureKeys(ctx, op, fresh); err != nil {
			return nil, err
		}
		var a admitting
		var err error
		r.created, err = core.InTx(ctx, e.c, op, func(tx *core.Txn) (map[id.ExecutionID]Created, error) {
			a = admitting{GateLocks: core.GateLocks{C: e.c}, e: e}
			if err := a.decide(ctx, tx, fresh); err != nil || first && len(a.Missing) > 0 {
				return nil, err
			}
			return a.insert(ctx, tx)
		})
		if err != nil || !first || len(a.Missing) == 0 {
			return r.outcomes(), err
		}
		e.keyRows.forget(a.Missing) // deleted since
	}
}

// registerBefore registers in a separate transaction, so creations with limits can begin admitted: admission can't rely on
// uncommitted rows. Afterwards nothing is left to register.
func (e *Engine) registerBefore(ctx context.Context, op string, creations []creation, new *registration) error {
	if e.c.Tx != nil || new.empty() || !anyAdmissible(creations) {
		return nil
	}
	_, err := core.InTx(ctx, e.c, op, func(tx *core.Txn) (struct{}, error) {
		return struct{}{}, e.register(ctx, tx, *new)
	})
	if err == nil {
		e.remember(*new)
		*new = registration{}
	}
	return err
}

// ensureKeys makes the rows of keys new to this process, in a separate transaction. Another creator of the same key waits
// for the commit, or leaves the key to the gate.
func (e *Engine) ensureKeys(ctx context.Context, op string, fresh []creation) error {
	of, namespaces := make(map[gate.ID]LimitKey), make(map[gate.ID]string)
	for i := range fresh {
		if c := &fresh[i]; c.admissible() {
			for n, l := range c.gates.limits {
				of[gate.ID(l.gate)], namespaces[gate.ID(l.gate)] = c.limits[n], c.namespace
			}
		}
	}
	unknown := slices.SortedFunc(maps.Keys(of), core.CompareGates)
	unknown = slices.DeleteFunc(unknown, e.keyRows.has)
	if len(unknown) == 0 {
		return nil
	}
	params := db.EnsureKeysParams{NowMs: e.c.NowMs()}
	for _, g := range unknown {
		params.PartitionKeys, params.GateIDs = append(params.PartitionKeys, core.GatePartition(g)), append(params.GateIDs, core.PgGate(g))
		params.Namespaces = append(params.Namespaces, namespaces[g])
		params.LimitNames, params.Keys = append(params.LimitNames, of[g].Name), append(params.Keys, of[g].Key)
	}
	_, err := core.InStatement(ctx, e.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (struct{}, error) {
		return struct{}{}, e.c.Q.EnsureKeys(ctx, conn, params)
	})
	switch {
	case errors.Is(err, fferr.ErrBusy):
		return nil // the gate makes the rows
	case err == nil:
		e.keyRows.add(unknown)
	}
	return err
}

// admitting is the admission of new executions.
type admitting struct {
	core.GateLocks
	e      *Engine
	atOnce []creation // claimable
	left   []creation // the others
}

// decide locks the unlocked limits of creations, and decides which creations are admitted.
func (a *admitting) decide(ctx context.Context, tx *core.Txn, fresh []creation) error {
	a.Begin()
	limits := make(map[gate.ID]int64) // the units of all creations
	for i := range fresh {
		if fresh[i].admissible() {
			for _, l := range fresh[i].gates.limits {
				limits[gate.ID(l.gate)] += l.units
			}
		}
	}
	all := slices.Collect(maps.Keys(limits))
	if err := a.Take(ctx, tx, all); err != nil {
		return err
	}
	needs := make(map[*core.TakenGate]int64, len(a.Taken))
	for g, t := range a.Taken {
		if needs[t] = limits[g]; t.Awaited {
			delete(a.State.Limits, g)
			delete(a.Taken, g)
		}
	}
	if err := a.Count(ctx, tx, all, func(t *core.TakenGate) int64 { return needs[t] }); err != nil {
		return err
	}
	for _, c := range fresh {
		if c.admitted = c.admissible() && a.State.Decide(c.waiting()).Verb == gate.Admit; c.admitted || c.plain() {
			a.atOnce = append(a.atOnce, c)
		} else {
			a.left = append(a.left, c)
			for _, l := range c.gates.limits {
				delete(a.State.Limits, gate.ID(l.gate)) // no later creation overtakes c
			}
		}
	}
	if alike(a.atOnce) != nil {
		return nil
	}
	// None, or too different for the fast path.
	missing := a.Missing
	a.atOnce, a.left = nil, slices.Clone(fresh)
	a.Begin()
	a.Missing = missing
	return nil
}

// waiting returns a creation as package gate reads it.
func (c *creation) waiting() (w gate.Waiting) {
	for _, l := range c.gates.limits {
		w.Uses = append(w.Uses, gate.Use{Limit: gate.ID(l.gate), Units: l.units})
	}
	return w
}

// insert writes the executions and the admissions.
func (a *admitting) insert(ctx context.Context, tx *core.Txn) (map[id.ExecutionID]Created, error) {
	created := make(map[id.ExecutionID]Created, len(a.atOnce)+len(a.left))
	groups := alike(a.atOnce)
	for _, group := range groups {
		a.e.announce(&tx.Due, group)
		for _, c := range group {
			created[c.id] = Created{ID: c.id, State: state.PublicWaiting}
			if c.admitted {
				a.Use(c.id, c.waiting().Uses)
			}
		}
	}
	steps := append(a.e.alikeSteps(ctx, a.atOnce, groups), a.Admissions(ctx)...)
	if len(steps) > 0 {
		if err := pgtx.InOneTrip(ctx, tx, steps...); err != nil {
			return nil, err
		}
	}
	if len(a.left) > 0 {
		others, err := a.e.insert(ctx, tx, a.left, nil, a.e.c.NowMs(), &tx.Due)
		if err != nil {
			return nil, err
		}
		maps.Copy(created, others)
	}
	return created, nil
}
