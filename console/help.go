package console

import (
	"net/url"
	"strings"

	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// helpLink leads to a page with a form that would help against a cause.
type helpLink struct{ Path, Title string }

// helpOf returns the pages that help against a cause, if the person may act there.
func helpOf(s any, c explain.Cause) ([]helpLink, error) {
	p, err := partOf(s, nil, nil)
	if err != nil {
		return nil, err
	}
	lane := helpLink{"lanes?lane=" + url.QueryEscape(c.Facts["lane"]), "Lane " + c.Facts["lane"]}
	switch c.Code {
	case explain.LanePaused:
		if p.access.may(ResumeLane) {
			lane.Title = "Resume the lane"
		}
		return []helpLink{lane}, nil
	case explain.LimitFull, explain.RateFull, explain.LimitHeld:
		if name := c.Facts["limit"]; name != "" {
			namespace, rest, ok := strings.Cut(name, "/")
			if !ok {
				namespace, rest = "", name
			}
			return []helpLink{{"limits/" + namespacePath(id.Namespace(namespace)) + "/" + url.PathEscape(rest), "Limit " + name}}, nil
		}
		return []helpLink{{"limits", "Limits"}}, nil
	case explain.Budget:
		return []helpLink{{"budgets", "Budgets"}}, nil
	case explain.SequenceStopped, explain.Sequence:
		return []helpLink{{"sequences?stopped=yes", "Stopped sequences"}}, nil
	case explain.WorkersDrained, explain.NoWorker, explain.NoHandler, explain.NoCapability, explain.InLine:
		return []helpLink{{"workers?lane=" + url.QueryEscape(c.Facts["lane"]), "Workers of the lane"}}, nil
	case explain.LeaseRanOut, explain.DelayOverdue, explain.WaitOverdue, explain.GateAsleep:
		if p.Whole() {
			return []helpLink{{"health", "Background jobs"}}, nil
		}
	case explain.Signal:
		return []helpLink{{"waits", "Questions"}}, nil
	}
	return nil, nil
}

// flags returns a filter as flags of `ff execution list`, or with where as conditions of the commands on many.
func flags(form url.Values, where bool) string {
	var b strings.Builder
	for _, field := range filterFields {
		switch {
		case !form.Has(field):
		case where:
			b.WriteString(" --where " + quoted(field+"="+form.Get(field)))
		default:
			b.WriteString(" --" + field + " " + quoted(form.Get(field)))
		}
	}
	return b.String()
}

// quoted returns a text as a word of a shell.
func quoted(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@,{}", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Flags returns the filter as flags of `ff execution list`.
func (p *executionsPage) Flags() string { return flags(p.Form, false) }

// Flags returns the filter as conditions of the commands on many executions.
func (p *manyPage) Flags() string { return flags(p.Form, true) }

// Commands returns the ff commands for the execution.
func (p *executionPage) Commands() []string {
	x := p.ID.Short()
	commands := []string{"ff why " + x, "ff execution show " + x}
	switch {
	case p.Ended():
		commands = append(commands, "ff execution retry "+x)
	default:
		commands = append(commands, "ff execution cancel "+x)
	}
	if p.Lease != nil {
		commands = append(commands, "ff execution revoke "+x)
	}
	return commands
}

// Delayable reports whether the start of the execution can be delayed.
func (p *executionPage) Delayable() bool {
	return p.Waiting() || p.State.Public == state.PublicDelayed
}
