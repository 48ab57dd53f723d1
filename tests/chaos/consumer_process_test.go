//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/policy"
)

var asConsumer = flag.Bool("chaos.consumer", false, "be a consumer process, told by its standard input")

// consumerOrders are the parameters of a consumer process, as JSON. The end of its input makes it finish.
type consumerOrders struct {
	DatabaseURL string
	Port        uint16 // of a pooler; 0: the server's own
	Name        string
	Batches     bool
	Frames      int // of a stream, for a writer of streams
}

// calledLine is the output of a consumer process for each call of its handler.
const calledLine = "called"

// noteEvent is the handler's record of an event, in a table without a key: two calls leave two rows.
const noteEvent = "INSERT INTO noted (event_id, partition_key, execution_id, outcome, occurred_at_ms, by) VALUES ($1, $2, $3, $4, $5, $6)"

func runConsumer(input io.Reader, output io.Writer) error {
	decoder := json.NewDecoder(input)
	var given consumerOrders
	if err := decoder.Decode(&given); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(given.DatabaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = 4
	if given.Port != 0 {
		config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", given.Port
		config.ConnConfig.TLSConfig, config.ConnConfig.Fallbacks = nil, nil
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{NoListener: given.Port != 0})
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	r := &reporter{out: output}
	consumer := events.Consumer{
		Name: "chaos", From: events.Beginning, Batch: 32, Timeout: time.Second,
		MaxTries: events.TryForever, Backoff: policy.Fixed(time.Millisecond),
	}
	note := func(ctx context.Context, tx pgx.Tx, e events.Completion) error {
		r.line(calledLine)
		if rand.IntN(200) == 0 {
			return errors.New("before it wrote")
		}
		_, err := tx.Exec(ctx, noteEvent, e.ID, e.Execution.Partition(), e.Execution.UUID().String(), string(e.Outcome), e.At.UnixMilli(), given.Name)
		if err == nil && rand.IntN(200) == 0 {
			err = errors.New("after it wrote")
		}
		return err
	}
	if !given.Batches {
		return events.HandleWith(ctx, eng, consumer, events.Completions(events.Filter{}), note)
	}
	return events.HandleBatches(ctx, eng, consumer, events.Completions(events.Filter{}), func(ctx context.Context, tx pgx.Tx, batch []events.Completion) error {
		for _, e := range batch {
			if err := note(ctx, tx, e); err != nil {
				return fmt.Errorf("event %d: %w", e.ID, err)
			}
		}
		return nil
	})
}
