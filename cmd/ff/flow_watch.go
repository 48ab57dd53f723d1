package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/graphviz"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/state"
)

func (a *app) flowWatchCommand() *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "watch ID",
		Short: "Show a flow while it runs, until all its executions have ended",
		Long: `watch draws a flow again whenever the state of an execution changes, and returns when all executions
have ended, with any outcome. If the output is not a terminal, or the flow is too large for it, watch
prints a line for each change instead.`,
		Example: `  ff flow watch 0199f2c4-6f6e-7c3a-9d55-2b8f4a1c7e10
  ff flow watch $ID --interval 10s | tee flow.log`,
		Args: oneID,
		RunE: a.does(func(ctx context.Context, args []string) error {
			flow, err := flowArgument(args[0])
			switch {
			case err != nil:
				return err
			case interval < 100*time.Millisecond:
				return &usageError{problem: "--interval is below 100ms"}
			}
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				w := &flowWatch{eng: eng, flow: flow, to: a.stdout}
				if isTerminal(a.stdout) {
					w.terminal = a.stdout.(*os.File)
				}
				return w.run(ctx, interval)
			})
		}),
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two looks")
	return cmd
}

// flowWatch is one run of `ff flow watch`.
type flowWatch struct {
	eng      *engine.Engine
	flow     id.FlowID
	to       io.Writer
	terminal *os.File // nil if the output is not a terminal

	shown  int // lines of the last frame on the terminal
	states map[id.ExecutionID]state.PublicState
	last   string
}

// run polls until all executions have ended. The engine reports the end at once, and run then reads the flow once more.
func (w *flowWatch) run(ctx context.Context, interval time.Duration) error {
	if done, err := w.look(ctx); done || err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := w.eng.AwaitFlow(waiting, w.flow)
		ended <- err
	}()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			if err != nil {
				return err
			}
			// Don't wait for executions added meanwhile.
			_, err = w.look(ctx)
			return err
		case <-ticker.C:
			if done, err := w.look(ctx); done || err != nil {
				return err
			}
		}
	}
}

// look shows the current state of the flow. It returns true if all executions have ended.
func (w *flowWatch) look(ctx context.Context) (bool, error) {
	progress, err := w.eng.FlowProgress(ctx, w.flow)
	if err != nil {
		return false, err
	}
	if progress.Total > graphviz.MaxText {
		return progress.Done(), w.line(progressLine(progress))
	}
	graph, err := w.eng.FlowGraph(ctx, w.flow)
	if err != nil {
		return false, err
	}
	// Show one moment only, the moment of the graph.
	progress = progressOf(progress.State, graph)
	if w.terminal == nil {
		return progress.Done(), w.changes(graph, progress)
	}
	return progress.Done(), w.draw(ctx, graph, progress)
}

func progressOf(own state.FlowState, graph *engine.FlowGraph) engine.FlowProgress {
	p := engine.FlowProgress{State: own, Total: len(graph.Nodes), Counts: make(map[state.PublicState]int)}
	for i := range graph.Nodes {
		n := &graph.Nodes[i]
		p.Counts[drawing.NodeState(n)]++
		if n.Err == nil && n.State.Terminal() {
			p.Ended++
		}
	}
	return p
}

func progressLine(p engine.FlowProgress) string {
	line := fmt.Sprintf("%d of %d ended", p.Ended, p.Total)
	if p.State == state.FlowCancelled {
		line = "cancelled, " + line
	}
	counts := p.Counts
	if p.Unreadable > 0 {
		counts = map[state.PublicState]int{unreadable: p.Unreadable}
		for s, n := range p.Counts {
			counts[s] = n
		}
	}
	if text := countsText(counts); text != "" {
		line += ": " + text
	}
	return line
}

// line shows only the progress: on a terminal in place of the last one, elsewhere if it has changed.
func (w *flowWatch) line(line string) error {
	if w.terminal != nil {
		return w.replace(line + "\n")
	}
	if line == w.last {
		return nil
	}
	w.last = line
	_, err := fmt.Fprintln(w.to, line)
	return err
}

// changes prints a line for each execution whose state has changed since the last look, and the progress.
func (w *flowWatch) changes(graph *engine.FlowGraph, progress engine.FlowProgress) error {
	var b strings.Builder
	states := make(map[id.ExecutionID]state.PublicState, len(graph.Nodes))
	for _, i := range byDepth(graph) {
		n := &graph.Nodes[i]
		states[n.ID] = drawing.NodeState(n)
		if before, known := w.states[n.ID]; w.states != nil && (!known || before != states[n.ID]) {
			fmt.Fprintf(&b, "%s: %s\n", printable(drawing.NodeName(n)), states[n.ID])
		}
	}
	w.states = states
	if _, err := io.WriteString(w.to, b.String()); err != nil {
		return err
	}
	return w.line(progressLine(progress))
}

// draw draws the graph in place of the last drawing.
func (w *flowWatch) draw(ctx context.Context, graph *engine.FlowGraph, progress engine.FlowProgress) error {
	width, height, err := term.GetSize(int(w.terminal.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = columns, 24
	}
	drawn, fits, err := graphviz.Text(ctx, drawing.OfFlow(graph), width-1)
	if err != nil {
		return err
	}
	if !fits {
		drawn = nodeTable(graph, 0, false, false) + "\n"
	}
	lines := strings.Split(strings.TrimSuffix(drawn, "\n"), "\n")
	if room := height - 3; !progress.Done() && len(lines) > room {
		// A terminal cannot redraw scrolled lines. The last drawing is complete.
		lines = append(lines[:max(room, 0)], "…")
	}
	return w.replace(strings.Join(append(lines, progressLine(progress)), "\n") + "\n")
}

// replace writes a frame in place of the last one.
func (w *flowWatch) replace(frame string) error {
	if frame == w.last {
		return nil
	}
	w.last = frame
	var b strings.Builder
	if w.shown > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", w.shown) // move up to its first line and clear the rest
	}
	b.WriteString(frame)
	w.shown = strings.Count(frame, "\n")
	_, err := io.WriteString(w.terminal, b.String())
	return err
}
