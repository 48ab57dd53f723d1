package contender

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// ProcessArg is the first argument of a program meant to call only [RunProcess].
const ProcessArg = "work"

const (
	countEvery = 10 * time.Millisecond // how often a process reports the number of finished jobs
	endTime    = time.Minute           // time for a process to end after a stop
)

// Fleet is a contender whose work runs in several processes of the program. Fleet calls Begun when the first process
// begins; all have started and connected before. It calls Done within 10 ms, and no other function.
type Fleet struct {
	Contender
	kind        string
	processes   int
	connections int
}

// NewFleet returns c's work in several processes, each with a pool of the given size.
func NewFleet(c Contender, processes, connections int) (*Fleet, error) {
	f := &Fleet{Contender: c, processes: processes, connections: connections}
	switch c.(type) {
	case *Worker:
		f.kind = "worker"
	case *River:
		f.kind = "river"
	case *Raw:
		f.kind = "raw"
	default:
		return nil, fmt.Errorf("%s has no processes", c.Name())
	}
	return f, nil
}

// Name implements [Contender].
func (f *Fleet) Name() string {
	return fmt.Sprintf("%s, %d processes with a pool of %d each", f.Contender.Name(), f.processes, f.connections)
}

// orders are the first JSON value a process reads. A second value starts the process, and the end of the input stops
// it. Orders are no arguments, since other users can read arguments.
type orders struct {
	Kind        string
	DatabaseURL string
	Connections int
	Tuning      Tuning // of River
	Workers     int
	Concurrency int
	Batch       int
}

// Lines of a process's output. A number is the number of finished jobs.
const (
	readyLine = "ready"
	begunLine = "begun"
)

// Run implements [Contender]. If a process ends early, Run ends the others and returns the process's error.
func (f *Fleet) Run(ctx context.Context, w Work) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	given := orders{
		Kind:        f.kind,
		DatabaseURL: f.Pool().Config().ConnString(),
		Connections: f.connections,
		Workers:     w.Workers,
		Concurrency: w.Concurrency,
		Batch:       w.Batch,
	}
	if r, ok := f.Contender.(*River); ok {
		given.Tuning = r.tuning
	}
	running, failed := errgroup.WithContext(ctx)
	var ready sync.WaitGroup
	ready.Add(f.processes)
	allReady := make(chan struct{})
	go func() {
		ready.Wait()
		close(allReady)
	}()
	for range f.processes {
		running.Go(func() error { return runOne(failed, program, given, w, &ready, allReady) })
	}
	return running.Wait()
}

// runOne runs a process until ctx ends. It calls ready exactly once.
func runOne(ctx context.Context, program string, given orders, w Work, ready *sync.WaitGroup, allReady <-chan struct{}) error {
	signalReady := sync.OnceFunc(ready.Done)
	defer signalReady()
	living, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	cmd := exec.CommandContext(living, program, ProcessArg)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	encoder := json.NewEncoder(input)
	finish := context.AfterFunc(ctx, func() {
		input.Close()
		time.AfterFunc(endTime, kill)
	})
	defer finish()
	err = encoder.Encode(given)
	counted := 0
	for lines := bufio.NewScanner(output); err == nil && lines.Scan(); {
		switch line := lines.Text(); line {
		case readyLine:
			signalReady()
			select {
			case <-allReady:
				err = encoder.Encode(true)
			case <-ctx.Done():
			}
		case begunLine:
			if w.Begun != nil {
				w.Begun()
			}
		default:
			var count int
			count, err = strconv.Atoi(line)
			for ; counted < count; counted++ {
				if w.Done != nil {
					w.Done()
				}
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		kill() // otherwise the input is closed, and the process ends by itself
	}
	ended := cmd.Wait()
	if ctx.Err() == nil {
		err = errors.Join(errors.New("it ended before its time"), err)
	} else {
		err = nil // of an input closed in between
	}
	if err = errors.Join(err, ended); err != nil {
		return fmt.Errorf("a process of the contender: %w", err)
	}
	return nil
}

// RunProcess runs one process of a [Fleet]. The process reads orders from in and writes progress to out.
func RunProcess(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) error {
	var given orders
	input := json.NewDecoder(in)
	if err := input.Decode(&given); errors.Is(err, io.EOF) {
		return nil // the other processes ended before the orders came
	} else if err != nil {
		return err
	}
	c, err := given.open(ctx, log)
	if err != nil {
		return err
	}
	defer c.Pool().Close()
	if err := connect(ctx, c.Pool()); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, readyLine); err != nil {
		return err
	}
	var begin bool
	if err := input.Decode(&begin); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()

	var done atomic.Int64
	begun := make(chan struct{})
	signalBegun := sync.OnceFunc(func() { close(begun) })
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(working, Work{
			Workers:     given.Workers,
			Concurrency: given.Concurrency,
			Batch:       given.Batch,
			Begun:       signalBegun,
			Done:        func() { done.Add(1) },
		})
	}()
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	reportDone := func(before int64) int64 {
		now := done.Load()
		if now != before {
			fmt.Fprintln(out, now)
		}
		return now
	}
	for before := int64(0); ; {
		select {
		case <-begun:
			fmt.Fprintln(out, begunLine)
			begun = nil
		case <-tick.C:
			before = reportDone(before)
		case err := <-ended:
			reportDone(before)
			return err
		}
	}
}

// connect opens all connections of a pool.
func connect(ctx context.Context, pool *pgxpool.Pool) error {
	opening, ctx := errgroup.WithContext(ctx)
	var opened sync.WaitGroup
	opened.Add(int(pool.Config().MaxConns))
	for range pool.Config().MaxConns {
		opening.Go(func() error {
			conn, err := pool.Acquire(ctx)
			opened.Done()
			if err != nil {
				return err
			}
			opened.Wait()
			conn.Release()
			return nil
		})
	}
	return opening.Wait()
}

// open opens the contender on the existing database.
func (o orders) open(ctx context.Context, log *slog.Logger) (Contender, error) {
	switch o.Kind {
	case "worker":
		c, err := newOursWith(ctx, o.DatabaseURL, o.Connections, nil, log)
		return &Worker{ours: c}, err
	case "river":
		r, err := newRiver(ctx, o.DatabaseURL, o.Connections, log)
		if err != nil {
			return nil, err
		}
		return r.Tuned(o.Tuning), nil
	case "raw":
		s, err := newStore(ctx, o.DatabaseURL, o.Connections, rawSettings)
		return &Raw{s}, err
	}
	return nil, fmt.Errorf("no contender %q", o.Kind)
}
