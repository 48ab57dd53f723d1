// Package flowload grows, cancels and completes many flows at once, and measures the longest wait of any call.
package flowload

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
	flows   int           // number of flows at once
	workers int           // that claim and complete members
	members int           // initial size of a flow, and growth
	pace    time.Duration // time between two calls for one flow
	span    time.Duration
	longest time.Duration // longest time that a call may take
}

func parse(args []string, usage io.Writer) (options, string, error) {
	var o options
	var url string
	flags := flag.NewFlagSet("bench flows", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.flows, "flows", 200, "`flows` at once")
	flags.IntVar(&o.workers, "workers", 8, "`workers` that claim and complete members, ten at a time")
	flags.IntVar(&o.members, "members", 8, "`executions` that a flow is created with; it grows by half as many")
	flags.DurationVar(&o.pace, "pace", time.Second, "time between two calls for the same flow")
	flags.DurationVar(&o.span, "span", time.Minute, "for how long")
	flags.DurationVar(&o.longest, "longest", time.Second, "fail when a call takes longer than this")
	flags.StringVar(&url, "database-url", "", "server to run on (default: DATABASE_URL, else one that is started)")
	flags.Usage = func() {
		fmt.Fprintln(usage, `bench flows builds, grows and cancels many flows at once while their members are completed, and prints how long the calls take.

Flags:`)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return o, "", err
	}
	switch {
	case flags.NArg() > 0:
		flags.Usage()
		return o, "", errors.New("flows takes flags only")
	case o.flows < 1 || o.workers < 1 || o.members < 2 || o.pace < time.Millisecond || o.span < 100*time.Millisecond || o.longest <= 0:
		return o, "", errors.New("-flows and -workers must be at least 1, -members 2, -pace 1ms, -span 100ms, and -longest positive")
	}
	return o, url, nil
}

// Run runs the load on a database that create makes.
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
	return o.on(ctx, databaseURL, out)
}

// on runs the load on an empty database.
func (o options) on(ctx context.Context, databaseURL string, out io.Writer) error {
	if _, err := schema.Migrate(ctx, databaseURL, schema.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = 32
	given := new(givenUp)
	config.ConnConfig.Tracer = given
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	eng, err := engine.New(pool, engine.Config{Log: log})
	if err != nil {
		return err
	}
	b := &bench{options: o, eng: eng, log: log, times: newTimes()}
	fmt.Fprintf(out, "%d flows at once, a call for each every %v, %d workers, for %v\n", o.flows, o.pace, o.workers, o.span)
	if err := b.run(ctx); err != nil {
		return err
	}
	slowest := b.times.print(out)
	fmt.Fprintf(out, "the server gave up for locks %d times, for deadlocks %d times\n", given.locks.Load(), given.deadlocks.Load())
	switch {
	case given.deadlocks.Load() > 0:
		return errors.New("there were deadlocks")
	case slowest > o.longest:
		return fmt.Errorf("a call took %v, and %v at most is wanted", slowest.Round(time.Millisecond), o.longest)
	}
	return nil
}
