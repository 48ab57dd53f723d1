package tests

import (
	"context"
	"sync"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// signing gives the database a key to sign grants with, if it has none.
func (f *fixture) signing(t *testing.T) {
	t.Helper()
	f.exec(t, "INSERT INTO ff_waitpoint_hmac (kid, secret, rotated_at_ms, active) VALUES ('operations', $1, 1, true) ON CONFLICT DO NOTHING", grantSecret)
}

// grantOperations are those of a scheduler and its workers.
func grantOperations() []operation {
	var keys sync.Map // of the grants that were issued, by execution
	key := func(x id.ExecutionID) id.GrantKey {
		key, _ := keys.Load(x)
		return key.(id.GrantKey)
	}
	arrange := func(prepare func(*testing.T, *fixture) id.ExecutionID) func(*testing.T, *fixture) engine.Lease {
		return func(t *testing.T, f *fixture) engine.Lease {
			f.signing(t)
			return engine.Lease{Fence: engine.Fence{Execution: prepare(t, f)}}
		}
	}
	created := func(t *testing.T, f *fixture) id.ExecutionID { return f.create(t) }
	granted := func(t *testing.T, f *fixture) id.ExecutionID {
		x := f.create(t)
		keys.Store(x, f.issue(t, x).Key)
		return x
	}
	interrupted := func(t *testing.T, f *fixture) id.ExecutionID {
		l := f.start(t).Lease
		if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil || outcomes[0] != nil {
			t.Fatal(outcomes, err)
		}
		keys.Store(l.Execution, f.issue(t, l.Execution).Key)
		return l.Execution
	}
	lost := func(t *testing.T, f *fixture) id.ExecutionID {
		x := f.start(t).ID
		if revoked, err := f.Operator().RevokeLease(t.Context(), engine.RevokeSpec{ID: x}); err != nil || revoked.NotRevoked != "" {
			t.Fatal(revoked, err)
		}
		return x
	}
	one := func(name, stored string, prepare func(*testing.T, *fixture) id.ExecutionID, reason error,
		call func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error,
		refused func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error,
	) operation {
		on := func(call func(context.Context, *fixture, engine.Grants, id.ExecutionID) error) func(context.Context, *fixture, *engine.Engine, engine.Lease) error {
			return func(ctx context.Context, f *fixture, e *engine.Engine, l engine.Lease) error {
				return call(ctx, f, e.Grants(), l.Execution)
			}
		}
		return operation{name: name, arrange: arrange(prepare), stored: stored, reason: reason, do: on(call), refused: on(refused)}
	}
	return []operation{
		one("issue a grant", stateGranted, created, engine.ErrNotFound,
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				_, err := g.IssueClaimGrant(ctx, f.grantSpec(x))
				return err
			},
			func(ctx context.Context, f *fixture, g engine.Grants, _ id.ExecutionID) error {
				_, err := g.IssueClaimGrant(ctx, f.grantSpec(id.NewExecutionID(f.lane, id.Partitions{})))
				return err
			}),
		one("grant to a worker", stateGranted, created, engine.ErrInvalidInput,
			func(ctx context.Context, f *fixture, g engine.Grants, _ id.ExecutionID) error {
				_, found, err := g.ClaimForWorker(ctx, f.workerSpec())
				if err == nil && !found {
					err = errIdle
				}
				return err
			},
			func(ctx context.Context, f *fixture, g engine.Grants, _ id.ExecutionID) error {
				spec := f.workerSpec()
				spec.TTL = 0
				_, _, err := g.ClaimForWorker(ctx, spec)
				return err
			}),
		one("claim by a grant", stateRunning, granted, engine.ErrInvalidGrant,
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				_, err := g.ClaimExecution(ctx, f.using(engine.ClaimGrant{Execution: x, Key: key(x)}))
				return err
			},
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				spec := f.using(engine.ClaimGrant{Execution: x, Key: key(x)})
				spec.Instance = "another"
				_, err := g.ClaimExecution(ctx, spec)
				return err
			}),
		one("claim by an operator", stateRunning, created, engine.ErrInvalidInput,
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				_, err := g.IssueGrantAndClaim(ctx, x, f.lane, leaseTTL)
				return err
			},
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				_, err := g.IssueGrantAndClaim(ctx, x, f.lane+".else", leaseTTL)
				return err
			}),
		one("resume by a grant", stateRunning, interrupted, engine.ErrInvalidGrant,
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				_, err := g.ClaimFromResumeGrant(ctx, f.resuming(engine.ClaimGrant{Execution: x, Key: key(x)}))
				return err
			},
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				spec := f.resuming(engine.ClaimGrant{Execution: x, Key: key(x)})
				spec.Instance = "another"
				_, err := g.ClaimFromResumeGrant(ctx, spec)
				return err
			}),
		one("issue a reclaim grant", stateReturned, lost, engine.ErrNotFound,
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				_, err := g.IssueReclaimGrant(ctx, f.grantSpec(x))
				return err
			},
			func(ctx context.Context, f *fixture, g engine.Grants, _ id.ExecutionID) error {
				_, err := g.IssueReclaimGrant(ctx, f.grantSpec(id.NewExecutionID(f.lane, id.Partitions{})))
				return err
			}),
		one("reclaim", stateRunning, func(t *testing.T, f *fixture) id.ExecutionID {
			x := lost(t, f)
			keys.Store(x, f.issueReclaim(t, x).Key)
			return x
		}, engine.ErrInvalidGrant,
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				_, err := g.ReclaimExecution(ctx, f.reclaiming(engine.ReclaimGrant{Execution: x, Key: key(x)}))
				return err
			},
			func(ctx context.Context, f *fixture, g engine.Grants, x id.ExecutionID) error {
				spec := f.reclaiming(engine.ReclaimGrant{Execution: x, Key: key(x)})
				spec.Instance = "another"
				_, err := g.ReclaimExecution(ctx, spec)
				return err
			}),
		wholeJob("expire grants", stateReady, arrange(granted), engine.Maintenance.ExpireGrants),
	}
}
