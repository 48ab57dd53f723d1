package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
)

// claimable explains why no worker has claimed the execution yet. With waits the execution is not claimable for another
// reason, and only missing workers count.
func (f *facts) claimable(waits bool) []Cause {
	missing := f.missing()
	if waits || len(missing) > 0 {
		return missing
	}
	e, now := f.execution, f.at()
	waited := now.Sub(e.LastMutationAt)
	switch {
	case f.around.GrantedUntilMs > 0:
		until := time.UnixMilli(f.around.GrantedUntilMs)
		return []Cause{{
			Code: Granted, Until: until, Certain: waited > late, Facts: map[string]string{"worker": f.around.Grantee},
			Text: fmt.Sprintf("It is granted to worker %s for another %s.", f.around.Grantee, span(until.Sub(now))),
		}}
	case !f.around.Queued:
		return []Cause{{
			Code: NoQueueEntry, Since: e.LastMutationAt, Certain: true, Facts: map[string]string{"lane": string(e.Lane)},
			Text: "It is claimable, and its queue entry is missing; the sweep repairs it within a minute.",
			Do:   []string{"ff job list"},
		}}
	}
	return []Cause{f.inLine(waited)}
}

// inLine counts the executions ahead.
func (f *facts) inLine(waited time.Duration) Cause {
	e, l := f.execution, f.load()
	ahead, byPriority := int(f.around.Ahead), int(f.around.ByPriority)
	c := Cause{
		Code: InLine, Since: e.LastMutationAt, Certain: waited > late,
		Facts: map[string]string{
			"lane": string(e.Lane), "ahead": strconv.Itoa(ahead), "by_priority": strconv.Itoa(byPriority),
			"running": strconv.Itoa(l.running), "places": strconv.Itoa(l.places),
		},
	}
	switch {
	case ahead == 0:
		c.Code = AboutToStart
		c.Text = fmt.Sprintf("It is the first in lane %s", e.Lane)
	case byPriority == ahead:
		c.Code = BehindPriority
		c.Text = fmt.Sprintf("%s of lane %s %s ahead, by priority", count(ahead, "execution"), e.Lane, are(ahead))
		c.Do = []string{"ff execution priority " + e.ID.Short() + " 9000"}
	default:
		c.Text = fmt.Sprintf("%s of lane %s %s ahead, %d by priority", count(ahead, "execution"), e.Lane, are(ahead), byPriority)
		c.Do = []string{"ff execution list --lane " + quoted(string(e.Lane)), "ff execution priority " + e.ID.Short() + " 9000"}
	}
	c.Text += fmt.Sprintf("; %d of %d places of its workers are taken", l.running, l.places)
	if l.stuck > 0 {
		c.Facts["stuck"] = strconv.Itoa(l.stuck)
		c.Text += fmt.Sprintf(", %d by handlers that ignore the end of their context", l.stuck)
		c.Do = append(c.Do, "ff worker list --lane "+quoted(string(e.Lane)))
	}
	c.Text += "."
	if l.full == l.workers {
		c.Facts["kind_full"] = strconv.Itoa(l.full)
		c.Text += fmt.Sprintf(" All handlers of kind %s are taken.", e.Kind)
	}
	if l.perMinute > 0 {
		c.Facts["starts_per_minute"] = strconv.FormatFloat(l.perMinute, 'f', 1, 64)
		if ahead > 0 {
			about := "about"
			if ahead > bound {
				about = "more than"
			}
			left := time.Duration(float64(ahead) / l.perMinute * float64(time.Minute))
			c.Text += fmt.Sprintf(" At the rate of the last %s it starts in %s %s.", span(l.measured), about, span(left))
		}
	}
	return c
}

// load is the load of the workers that could claim an execution.
type load struct {
	workers, running, places, stuck int
	full                            int // workers whose handlers of the kind are taken

	perMinute float64 // executions of the lane started in a minute
	measured  time.Duration
}

// load adds up the workers. In its first minute a process has no rate.
func (f *facts) load() (l load) {
	for i := range f.workers {
		w := &f.workers[i]
		if !f.serves(w) {
			continue
		}
		l.workers++
		l.running, l.places, l.stuck = l.running+int(w.Running), l.places+int(w.Concurrency), l.stuck+int(w.Stuck)
		if slices.Contains(w.FullKinds, f.execution.Kind) {
			l.full++
		}
		if within := time.Duration(w.StartedWithinMs) * time.Millisecond; within >= time.Minute {
			l.perMinute += float64(w.Started) / within.Minutes()
			l.measured = max(l.measured, within)
		}
	}
	return l
}

// serves reports whether a worker could claim the execution.
func (f *facts) serves(w *db.ListWorkersAroundRow) bool {
	return w.Claims && w.Live && !w.Drained && !w.Stopping && f.handles(w) && len(lacking(w, f.execution.RequiredCapabilities)) == 0
}

func (f *facts) handles(w *db.ListWorkersAroundRow) bool {
	return len(w.Kinds) == 0 || slices.Contains(w.Kinds, f.execution.Kind)
}

// missing explains why no registered worker can claim the execution; nil if one can.
func (f *facts) missing() []Cause {
	e := f.execution
	var drained, live, handling int
	var kinds []string
	lacks := make(map[string]int)
	for i := range f.workers {
		w := &f.workers[i]
		if f.serves(w) {
			return nil
		}
		if !w.Claims || !w.Live {
			continue
		}
		if w.Drained || w.Stopping {
			drained++
			continue
		}
		live++
		kinds = append(kinds, w.Kinds...)
		if !f.handles(w) {
			continue
		}
		handling++
		for _, capability := range lacking(w, e.RequiredCapabilities) {
			lacks[capability]++
		}
	}
	c := Cause{Since: e.LastMutationAt, Certain: true, Facts: map[string]string{"lane": string(e.Lane), "kind": e.Kind, "workers": strconv.Itoa(live)}, Do: []string{"ff worker list --lane " + quoted(string(e.Lane))}}
	switch {
	case live == 0 && drained > 0:
		c.Code = WorkersDrained
		c.Text = fmt.Sprintf("%s of lane %s: all are drained or stopping.", count(drained, "worker"), e.Lane)
		c.Do = append(c.Do, "ff worker resume --lane "+quoted(string(e.Lane)))
	case live == 0:
		c.Code = NoWorker
		c.Text = fmt.Sprintf("No registered worker claims from lane %s.", e.Lane)
	case handling == 0:
		c.Code = NoHandler
		verb := "claim"
		if live == 1 {
			verb = "claims"
		}
		c.Text = fmt.Sprintf("%s %s from lane %s, and none handles kind %s.", count(live, "worker"), verb, e.Lane, e.Kind)
		if similar := nearest(e.Kind, kinds); similar != "" {
			c.Text += " Similar: " + similar + "."
			c.Facts["similar"] = similar
		}
	default:
		c.Code = NoCapability
		var nowhere []string
		for _, capability := range e.RequiredCapabilities {
			if lacks[capability] == handling {
				nowhere = append(nowhere, capability)
			}
		}
		c.Text = fmt.Sprintf("No worker of kind %s has all of {%s}", e.Kind, strings.Join(e.RequiredCapabilities, ", "))
		if len(nowhere) > 0 {
			c.Text += ": " + strings.Join(nowhere, ", ") + " is missing everywhere"
		}
		c.Text += "."
		c.Facts["missing"] = strings.Join(nowhere, ", ")
	}
	return []Cause{c}
}
