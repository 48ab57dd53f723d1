package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

// limited names the full limit or quota policy, or reports missing background work.
func (f *facts) limited() Cause {
	e := f.execution
	if len(f.gate) == 0 {
		c := Cause{
			Code: GateAsleep, Since: e.LastMutationAt, Certain: f.at().Sub(e.LastMutationAt) > late, Facts: map[string]string{},
			Text: "It waits for a limit that is not in use.",
		}
		f.blame(&c, "admit_waiting", f.at().Sub(e.LastMutationAt))
		return c
	}
	g := &f.gate[0]
	name, show := "Its quota policy", ""
	if g.Name != "" {
		name, show = "Limit "+g.Name, "ff limit show "+quoted(g.Name)
		if g.Key != "" {
			name += fmt.Sprintf(" for %q", g.Key)
		}
	}
	ahead := 0
	if e.LimitWait != nil {
		ahead = e.LimitWait.Ahead
	}
	c := Cause{
		Code: LimitFull, Since: e.LastMutationAt, Certain: true,
		Facts: map[string]string{
			"limit": g.Name, "key": g.Key, "units": strconv.FormatInt(g.Units, 10), "in_use": strconv.FormatInt(g.InUse, 10),
			"wanted": strconv.FormatInt(g.Wanted, 10), "ahead": strconv.Itoa(ahead),
		},
	}
	waiting := ""
	if ahead > 0 {
		waiting = fmt.Sprintf(", %d wait ahead", ahead)
	}
	full := g.Units >= 0 && g.InUse+g.Wanted > g.Units
	switch {
	case g.Units >= 0 && g.HoldUntilMs > f.now:
		c.Code, c.Since, c.Until = LimitHeld, time.UnixMilli(g.HoldSinceMs), time.UnixMilli(g.HoldUntilMs)
		c.Facts["by"] = g.HoldBy
		c.Text = fmt.Sprintf("%s is held for another %s", name, span(c.Until.Sub(f.at())))
		if g.HoldBy != "" {
			c.Text += " by " + strings.Join(strings.Fields(g.HoldBy), " ")
		}
		c.Text += waiting + "."
		end := "ff limit hold " + quoted(g.Name)
		if g.Key != "" {
			end += " " + quoted(g.Key)
		}
		c.Do = append(c.Do, end+" --end")
	case g.WindowMs > 0 && g.NextAtMs > f.now:
		c.Code, c.Until = RateFull, time.UnixMilli(g.NextAtMs)
		c.Facts["window_seconds"] = seconds(time.Duration(g.WindowMs) * time.Millisecond)
		c.Text = fmt.Sprintf("%s lets %d start in %s, and all have%s; it has room again in %s.",
			name, g.Units, span(time.Duration(g.WindowMs)*time.Millisecond), waiting, span(c.Until.Sub(f.at())))
	case g.WindowMs > 0 && full, g.Units == 0:
		c.Code = RateFull
		c.Text = fmt.Sprintf("%s lets %d start, and %d have%s.", name, g.Units, g.InUse, waiting)
		if g.WindowMs == 0 {
			c.Code = LimitFull
		}
	case full:
		c.Text = fmt.Sprintf("%s is full: %d of %d in use%s", name, g.InUse, g.Units, waiting)
		var held []string
		for _, holder := range f.gate {
			if holder.HolderExecutionID.Valid {
				x := id.ExecutionIDFromRow(holder.HolderPartitionKey, id.ExecutionUUID(holder.HolderExecutionID.Bytes))
				c.Holders = append(c.Holders, x)
				if len(held) == 0 {
					held = append(held, x.String())
					if holder.HolderInstance != "" {
						held[0] += " on " + holder.HolderInstance
					}
				}
			}
		}
		if len(held) > 0 {
			c.Text += ", held by " + held[0]
		}
		c.Text += "."
		if g.Name != "" {
			c.Do = append(c.Do, fmt.Sprintf("ff limit set %s --units %d", quoted(g.Name), g.Units+g.Wanted))
		}
	default:
		c.Code, c.Certain = GateAsleep, f.at().Sub(e.LastMutationAt) > late
		c.Text = fmt.Sprintf("%s has room: %d of %d in use%s.", name, g.InUse, g.Units, waiting)
		f.blame(&c, "admit_waiting", f.at().Sub(e.LastMutationAt))
	}
	if show != "" {
		c.Do = append(c.Do, show)
	}
	return c
}

// budgeted names the used dimensions of the budget.
func (f *facts) budgeted() Cause {
	e := f.execution
	c := Cause{Code: Budget, Since: e.LastMutationAt, Certain: true, Facts: map[string]string{}}
	if f.budget == nil {
		c.Code, c.Certain = GateAsleep, f.at().Sub(e.LastMutationAt) > late
		c.Text = "It waits for a budget that does not exist, which admits it."
		f.blame(&c, "admit_waiting", f.at().Sub(e.LastMutationAt))
		return c
	}
	b := f.budget
	name := b.account.Policy.Key
	if name == "" {
		name = b.id
	}
	c.Facts["budget"] = name
	var over []string
	for _, dimension := range slices.Sorted(maps.Keys(b.account.Policy.Hard)) {
		limit, used := b.account.Policy.Hard[dimension], b.account.Usage[dimension]
		if limit <= 0 || used < limit {
			continue
		}
		text := fmt.Sprintf("%d of %d %s", used, limit, dimension)
		if reserved := b.account.Reserved[dimension]; reserved > 0 {
			text += fmt.Sprintf(", %d more reserved", reserved)
		}
		over = append(over, text)
		c.Facts["used "+dimension], c.Facts["limit "+dimension] = strconv.FormatInt(used, 10), strconv.FormatInt(limit, 10)
	}
	if len(over) == 0 {
		c.Code, c.Certain = GateAsleep, f.at().Sub(e.LastMutationAt) > late
		c.Text = fmt.Sprintf("Budget %q has room.", name)
		f.blame(&c, "admit_waiting", f.at().Sub(e.LastMutationAt))
		return c
	}
	c.Text = fmt.Sprintf("Budget %q is used up: %s", name, strings.Join(over, "; "))
	if !b.resetAt.IsZero() {
		c.Until = b.resetAt
		c.Text += fmt.Sprintf("; reset in %s", span(b.resetAt.Sub(f.at())))
	}
	c.Text += "."
	c.Do = []string{"ff budget show " + quoted(name), "ff budget reset " + quoted(name)}
	return c
}
