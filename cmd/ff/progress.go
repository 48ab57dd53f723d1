package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/demo"
	"github.com/flowfabric/flowfabric-go/state"
)

// display shows a demo's progress. Its methods are safe for concurrent use; close comes last.
type display interface {
	progress(demo.Progress)
	event(sentence string)
	close()
}

// newDisplay returns a display that redraws a line on a terminal, and writes lines elsewhere.
func (a *app) newDisplay() display {
	if isTerminal(a.stdout) {
		return newLiveDisplay(a.stdout)
	}
	return &lineDisplay{to: a.stdout}
}

// byState renders the number of unfinished members by state.
func byState(p demo.Progress) string {
	var parts []string
	for _, s := range state.PublicStates() {
		if n := p.Members[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", strings.ReplaceAll(string(s), "_", " "), n))
		}
	}
	return strings.Join(parts, ", ")
}

// lineDisplay writes one line per second.
type lineDisplay struct {
	mu   sync.Mutex
	to   io.Writer
	next time.Duration
}

func (d *lineDisplay) progress(p demo.Progress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.Elapsed < d.next && p.Ended() < p.Total {
		return
	}
	d.next = p.Elapsed + time.Second
	fmt.Fprintf(d.to, "%5.1f s  %d of %d, %.0f/s: %s\n",
		p.Elapsed.Seconds(), p.Ended(), p.Total, float64(p.Ended())/p.Elapsed.Seconds(), byState(p))
}

func (d *lineDisplay) event(sentence string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintln(d.to, sentence)
}

func (d *lineDisplay) close() {}

// liveDisplay redraws a progress bar, with the events above.
type liveDisplay struct {
	writer   progress.Writer
	tracker  *progress.Tracker
	rendered sync.WaitGroup
}

func newLiveDisplay(to io.Writer) *liveDisplay {
	d := &liveDisplay{}
	d.writer, d.tracker = newProgressBar(to)
	d.rendered.Go(d.writer.Render)
	return d
}

// newProgressBar returns a progress bar for a terminal, which its Render redraws until Stop.
func newProgressBar(to io.Writer) (progress.Writer, *progress.Tracker) {
	w := progress.NewWriter()
	w.SetOutputWriter(to)
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.SetTrackerLength(30)
	w.SetTrackerPosition(progress.PositionLeft)
	w.Style().Options.TimeInProgressPrecision = 100 * time.Millisecond
	w.Style().Options.TimeDonePrecision = 100 * time.Millisecond
	w.Style().Visibility = progress.StyleVisibility{Speed: true, Time: true, Tracker: true, Value: true}
	tracker := &progress.Tracker{Message: "starting", AutoStopDisabled: true}
	w.AppendTracker(tracker)
	return w, tracker
}

func (d *liveDisplay) progress(p demo.Progress) {
	d.tracker.UpdateTotal(int64(p.Total))
	d.tracker.SetValue(int64(p.Ended()))
	d.tracker.UpdateMessage(fmt.Sprintf("of %d: %s", p.Total, byState(p)))
}

func (d *liveDisplay) event(sentence string) { d.writer.Log("%s", sentence) }

func (d *liveDisplay) close() {
	d.tracker.MarkAsDone()
	d.writer.Stop()
	d.rendered.Wait()
}
