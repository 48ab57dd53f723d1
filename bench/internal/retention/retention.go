// Package retention measures the cost of deleting finished work, and whether the database stays small.
package retention

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/schema"
)

// options holds the parsed command line.
type options struct {
	measurement string
	rate        int           // executions a second, for steady
	n           int           // executions, for backlog and burndown
	span        time.Duration // for steady
	every       time.Duration // between two lines of output
	streams     int           // concurrent retentions, for backlog
	batch       int
	probe       time.Duration // between two measured claims
}

func parse(args []string, usage io.Writer) (options, string, error) {
	var o options
	var url string
	flags := flag.NewFlagSet("bench retention", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.rate, "rate", 2000, "steady: `executions` a second")
	flags.DurationVar(&o.span, "span", 10*time.Minute, "steady: for how long")
	flags.IntVar(&o.n, "n", 5_000_000, "backlog, burndown: `executions`")
	flags.DurationVar(&o.every, "every", 30*time.Second, "time between two lines")
	flags.IntVar(&o.batch, "batch", engine.MaxBatch, "backlog: `executions` in a batch of retention")
	flags.IntVar(&o.streams, "trim", 1, "backlog: 1 trims the outboxes beside, 0 does not")
	flags.DurationVar(&o.probe, "probe", 5*time.Millisecond, "time between two claims that are measured")
	flags.StringVar(&url, "database-url", "", "server to run on (default: DATABASE_URL, else one that is started)")
	flags.Usage = func() {
		fmt.Fprintln(usage, `bench retention measures retention, one of:

  steady    work at a fixed rate with a retention of one minute: sizes, dead rows and claims over time
  backlog   a backlog of finished executions is deleted beside a light load: rates, and claims with and without it
  burndown  a burn-down at full speed with retention at once: whether deletion keeps up

Flags:`)
		flags.PrintDefaults()
	}
	if len(args) > 0 {
		o.measurement, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return o, "", err
	}
	switch {
	case o.measurement != "steady" && o.measurement != "backlog" && o.measurement != "burndown":
		flags.Usage()
		return o, "", errors.New("say steady, backlog or burndown")
	case o.rate < 1 || o.n < 1000 || o.span < time.Second || o.every < time.Second || o.probe <= 0 || o.batch < 1 || o.batch > engine.MaxBatch:
		return o, "", errors.New("-rate must be at least 1, -n 1000, -span and -every 1s, -batch 1 to 1000, and -probe positive")
	}
	return o, url, nil
}

// Run runs one measurement on a database that create makes.
func Run(
	ctx context.Context, args []string, out io.Writer,
	create func(ctx context.Context, url string) (databaseURL string, stop func() error, err error),
) (err error) {
	o, url, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	databaseURL, stop, err := create(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := schema.Migrate(ctx, databaseURL, schema.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = 24
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{
		Retention: time.Minute, OutboxRetention: time.Minute,
		Log: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	b := &bench{options: o, pool: pool, eng: eng, out: out}
	switch o.measurement {
	case "steady":
		return b.steady(ctx)
	case "backlog":
		return b.backlog(ctx)
	default:
		return b.burndown(ctx)
	}
}

type bench struct {
	options
	pool *pgxpool.Pool
	eng  *engine.Engine
	out  io.Writer
}

func (b *bench) printf(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }
