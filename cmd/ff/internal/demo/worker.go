package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/worker"
)

const (
	// concurrency is the number of packages a worker process hashes at once.
	concurrency = 4
	// connections limits a worker process's connections, besides the listener: many processes share a server.
	connections = 6
)

// workerConfig is the configuration of a worker process, sent as a line of JSON. The password in the configuration
// requires a pipe, which is more private than the command line and the environment.
type workerConfig struct {
	DatabaseURL string    `json:"database_url"`
	Schema      string    `json:"schema"`
	Lane        id.LaneID `json:"lane"`
}

// RunWorker runs a worker process of [Run]. It returns nil at the end of the input or of ctx, and logs errors without
// further effect.
func RunWorker(ctx context.Context, input io.Reader, output, log io.Writer) error {
	lines := bufio.NewReader(input)
	greeting, err := lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	var config workerConfig
	if err := json.Unmarshal(greeting, &config); err != nil {
		return fmt.Errorf("decode the configuration: %w", err)
	}
	pool, err := newPool(ctx, config.DatabaseURL, config.Schema)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	w, err := worker.New(eng, worker.Config{
		Lanes:       []worker.Lane{{Name: config.Lane}},
		Concurrency: concurrency,
		LeaseTTL:    leaseTTL,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	starts := newGate(output)
	go func() {
		starts.open(lines)
		cancel()
	}()
	worker.Handle(w, hashing, func(ctx context.Context, job worker.Job[Package]) (Hashed, error) {
		if err := starts.pass(ctx); err != nil {
			return Hashed{}, err
		}
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return Hashed{}, err
		}
		imports := make([]Hashed, len(upstreams))
		for i, upstream := range upstreams {
			if imports[i], err = hashing.ResultOf(upstream); err != nil {
				return Hashed{}, err
			}
		}
		return job.Args.hash(imports)
	})
	return w.Run(ctx)
}

func newPool(ctx context.Context, databaseURL, schemaName string) (*pgxpool.Pool, error) {
	config, err := schema.PoolConfig(databaseURL, schemaName)
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections
	return pgxpool.NewWithConfig(ctx, config)
}

// gate starts handlers one by one, as the demo answers their questions.
type gate struct {
	mu     sync.Mutex
	out    io.Writer
	grants chan struct{}
}

func newGate(out io.Writer) *gate {
	return &gate{out: out, grants: make(chan struct{}, concurrency)}
}

// open converts lines to grants until the input ends.
func (g *gate) open(in *bufio.Reader) {
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		select {
		case g.grants <- struct{}{}:
		default: // enough unused grants for all handlers, from handlers that lost their leases
		}
	}
}

// pass asks for a grant and waits for any one.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	_, err := io.WriteString(g.out, askLine)
	g.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-g.grants:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
