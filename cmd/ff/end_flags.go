package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
)

// endFlags are the flags of a command with an end in the future.
type endFlags struct {
	span  time.Duration
	until string

	instant time.Time // of until
}

func (f *endFlags) add(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.span, "for", 0, "duration from now, such as 30m")
	cmd.Flags().StringVar(&f.until, "until", "", "the instant, as 2026-11-22T15:04:05Z")
}

func (f *endFlags) given() bool { return f.span != 0 || f.until != "" }

// check refuses both flags together, a negative time, and an --until that names no instant.
func (f *endFlags) check(command string) (err error) {
	if f.span < 0 || f.span > 0 && f.until != "" {
		return &usageError{problem: command + " takes either --for or --until"}
	}
	if f.until == "" {
		return nil
	}
	if f.instant, err = time.Parse(time.RFC3339, f.until); err != nil {
		return &usageError{problem: fmt.Sprintf("--until %q is not an instant such as 2026-11-22T15:04:05Z", f.until)}
	}
	return nil
}

// at returns the end by the clock of the database, zero if no flag is given.
func (f *endFlags) at(ctx context.Context, eng *engine.Engine) (time.Time, error) {
	if f.span == 0 {
		return f.instant, nil
	}
	now, err := eng.Now(ctx)
	return now.Add(f.span), err
}
