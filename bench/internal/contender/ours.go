package contender

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// ours is the common part of the library's contenders.
type ours struct {
	*store
	eng *engine.Engine
	log *slog.Logger
}

func newOurs(ctx context.Context, databaseURL string, log *slog.Logger) (*ours, error) {
	return newOursWith(ctx, databaseURL, connections, nil, log)
}

// newOursWith opens the library with a number of sessions, which begin with the given settings.
func newOursWith(ctx context.Context, databaseURL string, connections int, settings map[string]string, log *slog.Logger) (*ours, error) {
	s, err := newStore(ctx, databaseURL, connections, settings)
	if err != nil {
		return nil, err
	}
	eng, err := engine.New(s.pool, engine.Config{Log: log})
	if err != nil {
		return nil, err
	}
	return &ours{store: s, eng: eng, log: log}, nil
}

func (o *ours) Insert(ctx context.Context, jobs []Job) error {
	specs := make([]engine.ExecutionSpec, len(jobs))
	for i, job := range jobs {
		specs[i] = spec(job)
	}
	return o.create(ctx, specs)
}

func (o *ours) create(ctx context.Context, specs []engine.ExecutionSpec) error {
	created, err := o.eng.CreateExecutions(ctx, specs)
	if err != nil {
		return err
	}
	for i := range created {
		if created[i].Err != nil {
			return created[i].Err
		}
	}
	return nil
}

func (o *ours) InsertTx(ctx context.Context, tx pgx.Tx, job Job) error {
	_, err := o.eng.WithTx(tx).CreateExecution(ctx, spec(job))
	return err
}

func spec(job Job) engine.ExecutionSpec {
	s := engine.ExecutionSpec{Kind: kind, Payload: job.args().encode(), Priority: job.Priority}
	if job.Tag != "" {
		s.Tags = map[string]string{"bench.tag": job.Tag}
	}
	if job.Variant > 0 {
		s.Kind = variantKinds[job.Variant]
	}
	if job.Lane > 0 {
		s.Lane = id.LaneID(laneName(job.Lane))
	}
	if job.Reserved {
		s.Policy = &policy.Execution{Capabilities: id.NewCapabilities(reservedFor)}
	}
	return s
}

func (o *ours) InsertFlow(ctx context.Context, g Graph) error {
	_, err := o.createFlow(ctx, g)
	return err
}

func (o *ours) createFlow(ctx context.Context, g Graph) (id.FlowID, error) {
	flow := engine.FlowSpec{Kind: "bench", Nodes: make([]engine.Node, g.Nodes), Edges: make([]engine.Edge, len(g.Edges))}
	for i := range flow.Nodes {
		flow.Nodes[i] = engine.Node{Key: strconv.Itoa(i), Spec: spec(Job{Num: i})}
	}
	for i, edge := range g.Edges {
		flow.Edges[i] = engine.Edge{From: strconv.Itoa(edge[0]), To: strconv.Itoa(edge[1])}
	}
	created, err := o.eng.CreateFlow(ctx, flow)
	return created.ID, err
}

func (o *ours) Cancels(ctx context.Context, g Graph, held int) (func(context.Context) (int, error), error) {
	flow, err := o.createFlow(ctx, g)
	if err != nil {
		return nil, err
	}
	if held > 0 {
		if _, err := o.Hold(ctx, held); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) (int, error) {
		cancelled, err := o.eng.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
		return len(cancelled.Members), err
	}, nil
}

func (o *ours) Fill(ctx context.Context, n int) error {
	if err := o.Insert(ctx, []Job{{}}); err != nil {
		return err
	}
	return o.multiply(ctx, n)
}

func (o *ours) claimer() (*engine.Claimer, error) {
	return o.eng.NewClaimer(engine.ClaimSpec{
		Lane:     engine.DefaultLane,
		Worker:   "bench",
		Instance: "bench",
		LeaseTTL: 10 * time.Minute,
	})
}

func (o *ours) Claims(context.Context) (func(context.Context, int) (int, error), error) {
	c, err := o.claimer()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, n int) (int, error) {
		claimed, err := c.Claim(ctx, n)
		return len(claimed), err
	}, nil
}

func (o *ours) Hold(ctx context.Context, n int) (func(context.Context) error, error) {
	c, err := o.claimer()
	if err != nil {
		return nil, err
	}
	renewals := make([]engine.Renewal, 0, n)
	for len(renewals) < n {
		claimed, err := c.Claim(ctx, min(n-len(renewals), engine.MaxBatch))
		if err != nil {
			return nil, err
		}
		for i := range claimed {
			renewals = append(renewals, engine.Renewal{Lease: claimed[i].Lease})
		}
	}
	return func(ctx context.Context) error {
		renewed, err := o.eng.RenewLeases(ctx, renewals)
		if err != nil {
			return err
		}
		for i := range renewed {
			if renewed[i].Err != nil {
				return renewed[i].Err
			}
		}
		return nil
	}, nil
}
