package signals

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

var asActor = flag.Bool("signals.actor", false, "be a process that a test kills, with orders on its standard input")

// orders are the parameters of an actor, as JSON.
type orders struct {
	DatabaseURL string
	Role        string
	Lane        id.LaneID
	Execution   string
	Waitpoint   id.WaitpointID
	Token       string
	Later       time.Duration // how far its clock is ahead
}

const (
	actorTTL = time.Minute // of an actor's leases
	onceKey  = "evt_1"     // the key of its signal
)

// act plays a role once.
func act(input io.Reader) error {
	var given orders
	if err := json.NewDecoder(input).Decode(&given); err != nil {
		return err
	}
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(given.DatabaseURL)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = string(given.Lane)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip for each statement
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{Now: func() time.Time { return time.Now().Add(given.Later) }})
	if err != nil {
		return err
	}
	x, err := id.ParseExecutionID(given.Execution)
	if err != nil {
		return err
	}
	claim := func() (engine.Claimed, error) {
		claimed, err := eng.Claim(ctx, engine.ClaimSpec{Lane: given.Lane, Worker: "actor", Instance: "actor", LeaseTTL: actorTTL}, 1)
		if err != nil || len(claimed) != 1 {
			return engine.Claimed{}, errors.Join(err, fmt.Errorf("claimed %d", len(claimed)))
		}
		return claimed[0], nil
	}
	switch given.Role {
	case "suspend":
		claimed, err := claim()
		if err != nil {
			return err
		}
		_, err = eng.Suspend(ctx, engine.SuspendSpec{Lease: claimed.Lease, Condition: engine.Received(approved.Name), Timeout: time.Hour})
		return err
	case "suspend with a waitpoint":
		claimed, err := claim()
		if err != nil {
			return err
		}
		if _, err := eng.CreateWaitpoint(ctx, engine.WaitpointSpec{Lease: claimed.Lease, Key: id.WaitpointKey(approved.Name), TTL: time.Hour}); err != nil {
			return err
		}
		_, err = eng.SuspendEach(ctx, []engine.SuspendSpec{{Lease: claimed.Lease, Condition: engine.Received(approved.Name), Timeout: time.Hour}})
		return err
	case "signal":
		return send(ctx, eng, x)
	case "signal by a token":
		spec, err := approved.Spec(x, approval{"ada"})
		if err != nil {
			return err
		}
		spec.IdempotencyKey = onceKey
		_, err = eng.SignalWaitpoint(ctx, engine.WaitpointSignal{
			SignalSpec: spec, Waitpoint: given.Waitpoint, Token: wire.WaitpointToken(given.Token),
		})
		return err
	case "claim and complete":
		claimed, err := claim()
		if err != nil {
			return err
		}
		received, err := eng.ReceivedSignals(ctx, x)
		if err != nil {
			return err
		}
		return completeOnce(ctx, eng, pool, claimed.Lease, received[0].ID.String())
	case "resume":
		return eng.Resume(ctx, x, 0)
	case "time out":
		_, err := upkeep.Of(eng).ExpireWaits(ctx, 10)
		return err
	}
	return fmt.Errorf("no role is %q", given.Role)
}

// send sends the signal of the tests of kills. Its key makes repetitions one signal.
func send(ctx context.Context, eng *engine.Engine, x id.ExecutionID) error {
	return approved.Send(ctx, eng, x, approval{"ada"}, engine.Once(onceKey))
}

// completeOnce completes an execution in one transaction with the effect of its handler.
func completeOnce(ctx context.Context, eng *engine.Engine, pool *pgxpool.Pool, l engine.Lease, effect string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1, $2)", l.Execution.UUID(), effect); err != nil {
			return err
		}
		return eng.WithTx(tx).CompleteExecution(ctx, l, nil)
	})
}
