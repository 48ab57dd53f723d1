package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

func (a *app) streamCommand() *cobra.Command {
	cmd := group("stream", "Print the output of executions", "")
	a.databaseFlags(cmd)
	cmd.AddCommand(a.streamTailCommand(), a.streamSummaryCommand())
	return cmd
}

// streamFlags are the flags of `ff stream tail` as given.
type streamFlags struct {
	after   string
	attempt int
	asJSON  bool
	options stream.TailOptions
}

func (a *app) streamTailCommand() *cobra.Command {
	f := streamFlags{attempt: -1}
	cmd := &cobra.Command{
		Use:   "tail ID",
		Short: "Print the output of an execution while it is written",
		Long: `tail prints the frames of an execution's output, those that exist and those that follow, until the
execution ends. It prints payloads as they are, and on a terminal control characters as escapes; those
that are not text only as JSON. It goes on with the next attempt after a retry. Messages about attempts
and missing frames go to standard error.`,
		Example: `  ff stream tail 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff stream tail $ID --attempt 2
  ff stream tail $ID --json | jq -r .position`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if err := f.parse(); err != nil {
				return err
			}
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				return a.tailStream(ctx, eng, execution, &f)
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.after, "after", "", "start after this position, as printed by --json")
	flags.IntVar(&f.attempt, "attempt", -1, "print only this attempt, from 0")
	flags.BoolVar(&f.options.SkipBestEffort, "skip-best-effort", false, "leave out best-effort frames")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (f *streamFlags) parse() error {
	position := f.after
	switch {
	case f.attempt >= 0 && f.after != "":
		return &usageError{problem: "--attempt and --after exclude each other"}
	case f.attempt != -1:
		if err := checkAttempt(f.attempt); err != nil {
			return err
		}
		f.options.OneAttempt = true
		position = fmt.Sprintf("%d.0.0.0.0", f.attempt)
	case f.after == "":
		return nil
	}
	if err := f.options.After.UnmarshalText([]byte(position)); err != nil {
		return asUsage(err)
	}
	return nil
}

// checkAttempt checks an attempt given by a flag; -1 is none.
func checkAttempt(attempt int) error {
	switch {
	case attempt < -1:
		return &usageError{problem: fmt.Sprintf("--attempt %d is negative", attempt)}
	case attempt > math.MaxInt32:
		return &usageError{problem: fmt.Sprintf("--attempt %d is too large", attempt)}
	}
	return nil
}

// streamView is the JSON of a frame, of a gap or of the end of an attempt.
type streamView struct {
	Position stream.Position `json:"position"`
	Attempt  int             `json:"attempt"`
	Gap      int64           `json:"gap,omitempty"` // durable frames after the position that are no longer kept
	Epoch    int64           `json:"epoch,omitempty"`
	ID       string          `json:"id,omitempty"`
	Mode     stream.Mode     `json:"mode,omitempty"`
	Type     string          `json:"type,omitempty"`
	Text     *string         `json:"text,omitempty"`
	Base64   []byte          `json:"base64,omitempty"` // a binary payload
	Trimmed  int64           `json:"trimmed,omitempty"`
	Closed   stream.End      `json:"closed,omitempty"`
	ClosedAt string          `json:"closed_at,omitempty"`
	Last     bool            `json:"last,omitempty"` // no attempt follows

	Correlation string `json:"correlation,omitempty"`
}

func newStreamView(f *stream.Entry) streamView {
	v := streamView{Position: f.Position(), Attempt: f.Attempt, Epoch: f.Epoch}
	if c := f.Closed; c != nil {
		v.Closed, v.ClosedAt, v.Last = c.Reason, timestamp(c.At), c.Last
		return v
	}
	v.ID, v.Mode, v.Type, v.Correlation, v.Trimmed = f.ID.String(), f.Mode, f.Type, f.Correlation, f.Trimmed
	if text := string(f.Payload); utf8.ValidString(text) {
		v.Text = &text
	} else {
		v.Base64 = f.Payload
	}
	return v
}

func (a *app) tailStream(ctx context.Context, eng *engine.Engine, execution id.ExecutionID, f *streamFlags) error {
	p := streamPrinter{
		app: a, asJSON: f.asJSON, terminal: isTerminal(a.stdout), at: f.options.After, attempt: -1, lineEnded: true,
	}
	found := false
	for frame, err := range stream.Tail(ctx, eng, execution, f.options) {
		found = true
		if gap, ok := errors.AsType[*fferr.StreamGapError](err); ok {
			err = p.gap(gap)
		} else if err == nil {
			err = p.print(&frame)
		}
		if err != nil {
			_ = p.endLine()
			return asUsage(err)
		}
	}
	if f.options.OneAttempt && !found {
		attempt := &fferr.NotFoundError{Entity: "attempt", ID: fmt.Sprintf("%d of execution %s", f.attempt, execution.UUID())}
		return &stepError{attempt, "see `ff execution show`", exitNotFound}
	}
	return nil
}

// streamPrinter prints frames, and each change of the attempt between them.
type streamPrinter struct {
	*app
	asJSON    bool
	terminal  bool            // text goes to a terminal
	at        stream.Position // of the last value
	attempt   int             // of the last frame; -1: none
	epoch     int64           // of its lease
	lineEnded bool
}

func (p *streamPrinter) gap(gap *fferr.StreamGapError) error {
	if p.asJSON {
		return p.printJSON(streamView{Position: p.at, Attempt: gap.Attempt, Gap: gap.Frames})
	}
	fmt.Fprintf(p.stderr, "%d frames of attempt %d are no longer kept\n", gap.Frames, gap.Attempt)
	return nil
}

func (p *streamPrinter) printJSON(v streamView) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := p.stdout.Write(escapeInJSON(line.Bytes()))
	return err
}

func (p *streamPrinter) print(f *stream.Entry) error {
	p.at = f.Position()
	if p.asJSON {
		return p.printJSON(newStreamView(f))
	}
	if f.Closed != nil {
		if err := p.endLine(); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "attempt %d ended: %s\n", f.Attempt, f.Closed.Reason)
		return nil
	}
	if err := p.announce(f); err != nil {
		return err
	}
	if f.Trimmed > 0 {
		fmt.Fprintf(p.stderr, "%d frames before were trimmed\n", f.Trimmed)
	}
	if !utf8.Valid(f.Payload) {
		fmt.Fprintf(p.stderr, "frame %s has %d bytes of type %q: see --json\n", f.ID, len(f.Payload), f.Type)
		return nil
	}
	if len(f.Payload) > 0 {
		p.lineEnded = bytes.HasSuffix(f.Payload, []byte("\n"))
	}
	text := f.Payload
	if p.terminal {
		text = escapeControls(text)
	}
	_, err := p.stdout.Write(text)
	return err
}

// announce prints the begin of another attempt, or of another run of the attempt.
func (p *streamPrinter) announce(f *stream.Entry) error {
	again := f.Attempt == p.attempt && f.Epoch != p.epoch
	if !again && (f.Attempt == p.attempt || f.Attempt == 0 && p.attempt < 0) {
		p.attempt, p.epoch = f.Attempt, f.Epoch
		return nil
	}
	p.attempt, p.epoch = f.Attempt, f.Epoch
	if err := p.endLine(); err != nil {
		return err
	}
	if again {
		fmt.Fprintf(p.stderr, "attempt %d began again\n", f.Attempt)
	} else {
		fmt.Fprintf(p.stderr, "attempt %d\n", f.Attempt)
	}
	return nil
}

// endLine ends a line left open by a payload.
func (p *streamPrinter) endLine() error {
	if p.lineEnded {
		return nil
	}
	p.lineEnded = true
	_, err := fmt.Fprintln(p.stdout)
	return err
}

func (a *app) streamSummaryCommand() *cobra.Command {
	attempt := -1
	cmd := &cobra.Command{
		Use:   "summary ID",
		Short: "Print the document that the summary frames of an attempt have made",
		Example: `  ff stream summary 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff stream summary $ID --attempt 0 | jq .done`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			if err := checkAttempt(attempt); err != nil {
				return err
			}
			return a.onExecution(ctx, args[0], func(eng *engine.Engine, execution id.ExecutionID) error {
				of := attempt
				for found, err := range eng.Attempts(ctx, execution) {
					if err != nil {
						return err
					}
					if attempt < 0 {
						of = found.Index
					}
				}
				summary, err := stream.ReadSummary(ctx, eng, execution, max(of, 0))
				if err != nil {
					return asUsage(err)
				}
				_, err = fmt.Fprintf(a.stdout, "%s\n", escapeInJSON(summary.JSON))
				return err
			})
		}),
	}
	cmd.Flags().IntVar(&attempt, "attempt", -1, "attempt, from 0; default: the newest")
	return cmd
}
