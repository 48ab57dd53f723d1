package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// delayed reports the end of the delay and the reason.
func (f *facts) delayed() Cause {
	e := f.execution
	left := e.DelayUntil.Sub(f.at())
	c := Cause{Since: e.LastMutationAt, Until: e.DelayUntil, Certain: true, Facts: map[string]string{}}
	switch {
	case left < 0:
		c.Code, c.Since = DelayOverdue, e.DelayUntil
		c.Text = fmt.Sprintf("It was due %s ago, and no process has made it claimable.", span(-left))
		f.blame(&c, "promote_delayed", -left)
		return c
	case e.State.Blocking == state.WaitingForRetryBackoff && f.around.FailedAttempt >= 0:
		c.Code = RetryBackoff
		c.Text = fmt.Sprintf("Attempt %d failed%s; the next is due in %s.", f.around.FailedAttempt+1, because(f.around.Failure), span(left))
		c.Facts["attempt"], c.Facts["reason"] = strconv.Itoa(int(f.around.FailedAttempt)+1), f.around.Failure
	case f.around.PauseStep != "":
		c.Code = Sleeping
		c.Text = fmt.Sprintf("It pauses in step %q for another %s.", f.around.PauseStep, span(left))
		c.Facts["step"] = f.around.PauseStep
	default:
		c.Code = Delayed
		c.Text = fmt.Sprintf("It is delayed for another %s.", span(left))
	}
	c.Do = []string{"ff execution delay " + e.ID.Short() + " --for 0s"}
	return c
}

// suspended names the signals or the called executions.
func (f *facts) suspended() Cause {
	e := f.execution
	c := Cause{Code: Signal, Certain: true, Since: e.LastMutationAt, Facts: map[string]string{}}
	if e.Wait == nil {
		c.Text = "It is suspended, and no open wait is stored: it can only be resumed."
		c.Do = []string{"ff execution resume " + e.ID.Short()}
		return c
	}
	c.Since, c.Until = e.Wait.Since, e.Wait.Until
	if f.around.CallStep != "" {
		c.Code = Call
		f.setCall(&c)
	} else {
		f.setSignal(&c)
	}
	if c.Until.IsZero() {
		return c
	}
	left := c.Until.Sub(f.at())
	if left >= 0 {
		c.Text += fmt.Sprintf(" Times out in %s.", span(left))
		return c
	}
	c.Code, c.Since = WaitOverdue, c.Until
	c.Text = fmt.Sprintf("Its wait timed out %s ago, and no process has ended it.", span(-left))
	f.blame(&c, "expire_waits", -left)
	return c
}

func (f *facts) setSignal(c *Cause) {
	e := f.execution
	w := e.Wait
	c.Text = fmt.Sprintf("It has waited for %s for %s", w.Condition, span(f.at().Sub(w.Since)))
	if w.Asked != "" {
		c.Text += fmt.Sprintf(", asking %q", w.Asked)
		c.Facts["asked"] = w.Asked
	}
	c.Text += "."
	if w.Received > 0 {
		c.Text += fmt.Sprintf(" %s so far, which %s not enough.", count(w.Received, "signal"), are(w.Received))
	}
	c.Facts["received"], c.Facts["names"] = strconv.Itoa(w.Received), strings.Join(w.Names, ", ")
	if len(w.Names) > 0 {
		c.Do = []string{"ff execution signal " + e.ID.Short() + " " + quoted(w.Names[0])}
	} else {
		c.Do = []string{"ff execution resume " + e.ID.Short()}
	}
}

func (f *facts) setCall(c *Cause) {
	step := fmt.Sprintf("Step %q", f.around.CallStep)
	c.Facts["step"] = f.around.CallStep
	c.Facts["open"], c.Facts["called"] = strconv.Itoa(f.open), strconv.Itoa(f.total)
	if f.open == 0 {
		c.Text = step + " has called executions that have all ended; it continues within seconds."
		c.Certain = f.at().Sub(c.Since) > late
		f.blame(c, "resume_callers", 0)
		return
	}
	c.Text = fmt.Sprintf("%s waits for %d of %s.", step, f.open, count(f.total, "called execution"))
	c.Holders = ids(f.called)
	c.Do = []string{"ff why " + f.called[0].id.Short()}
}

// ids returns the ids of the first five.
func ids(of []awaited) (first []id.ExecutionID) {
	for _, a := range of[:min(len(of), 5)] {
		first = append(first, a.id)
	}
	return first
}

// dependent names the unfinished upstreams, or the first execution of the sequence.
func (f *facts) dependent() Cause {
	e := f.execution
	if f.open > 0 {
		names := make([]string, 0, 5)
		for _, upstream := range f.upstreams[:min(len(f.upstreams), 5)] {
			names = append(names, upstream.name+" "+strings.ReplaceAll(string(upstream.state), "_", " "))
		}
		return Cause{
			Code: Upstreams, Since: e.CreatedAt, Certain: true, Holders: ids(f.upstreams),
			Facts: map[string]string{"open": strconv.Itoa(f.open), "upstreams": strconv.Itoa(f.total)},
			Text:  fmt.Sprintf("It waits for %d of %s: %s.", f.open, count(f.total, "upstream"), strings.Join(names, ", ")),
			Do:    []string{"ff why " + f.upstreams[0].id.Short()},
		}
	}
	s := e.Sequence
	if s == nil || s.Place == 0 {
		c := Cause{
			Code: Upstreams, Since: e.LastMutationAt, Certain: f.at().Sub(e.LastMutationAt) > late, Facts: map[string]string{"open": "0"},
			Text: "All its upstreams have ended, and no process has released it.",
		}
		f.blame(&c, "dispatch_completions", 0)
		return c
	}
	c := Cause{
		Code: Sequence, Since: e.CreatedAt, Certain: true, Holders: []id.ExecutionID{s.First},
		Facts: map[string]string{"sequence": s.Key, "ahead": strconv.Itoa(s.Ahead)},
		Text:  fmt.Sprintf("It waits in sequence %q behind %s; %s is first.", s.Key, count(s.Ahead, "execution"), s.First),
		Do:    []string{"ff why " + s.First.Short()},
	}
	if !s.StoppedAt.IsZero() {
		c.Code, c.Since = SequenceStopped, s.StoppedAt
		c.Text = fmt.Sprintf("Sequence %q has stood still for %s: %s failed. Replay it, or continue the sequence.",
			s.Key, span(f.at().Sub(s.StoppedAt)), s.First)
		c.Do = []string{"ff execution retry " + s.First.Short(), "ff sequence continue " + quoted(s.Key)}
	}
	return c
}

// seconds returns whole seconds for a fact.
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
