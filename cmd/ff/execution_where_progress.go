package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/flowfabric/flowfabric-go/operator"
)

// confirm asks a question on the standard error, and returns an error unless the answer is yes.
func (a *app) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return &stepError{fmt.Errorf("nothing was changed"), "answer y to make the change", exitFailed}
	}
}

// bulkDisplay shows the progress of a change of many executions: a redrawn line on a terminal, and a line a second
// elsewhere.
type bulkDisplay struct {
	to   io.Writer
	next time.Time // of the next line

	writer   progress.Writer // nil unless to is a terminal
	tracker  *progress.Tracker
	rendered sync.WaitGroup
}

// newBulkDisplay returns a display for a number of executions, 0 if it is not known.
func newBulkDisplay(to io.Writer, total int) *bulkDisplay {
	d := &bulkDisplay{to: to, next: time.Now().Add(time.Second)}
	if !isTerminal(to) {
		return d
	}
	d.writer, d.tracker = newProgressBar(to)
	d.tracker.UpdateTotal(int64(total))
	d.rendered.Go(d.writer.Render)
	return d
}

func (d *bulkDisplay) progress(p operator.BulkProgress) {
	switch now := time.Now(); {
	case d.writer != nil:
		d.tracker.SetValue(int64(p.Matched))
		d.tracker.UpdateMessage(fmt.Sprintf("%d changed, %d refused, %d busy", p.Changed, p.Refused, p.Busy))
	case p.Next == "" || !now.Before(d.next):
		d.next = now.Add(time.Second)
		fmt.Fprintln(d.to, counts(p))
	}
}

func (d *bulkDisplay) close() {
	if d.writer == nil {
		return
	}
	d.tracker.MarkAsDone()
	d.writer.Stop()
	d.rendered.Wait()
}
