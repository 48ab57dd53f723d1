package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

const longest = 366 * 24 * time.Hour

// Silence writes the reasons of silencing comments into the accepted findings, and adds findings about the comments. A
// comment applies to the statement after it, and to findings about its whole file; in a query, to findings about this
// query. base may be nil: then the comments of all of head's migrations are checked, else only new ones.
func Silence(findings []report.Finding, base, head *project.Side, today time.Time) []report.Finding {
	old := map[string]bool{}
	if base != nil {
		for _, m := range base.Migrations {
			old[m.Version] = true
		}
	}
	findings = slices.Clone(findings)
	var about []report.Finding
	for _, m := range head.Migrations {
		for _, s := range slices.Concat(m.Up.Statements, m.Down.Statements) {
			for _, silence := range s.Silence {
				remark, holds := judge(silence, today)
				used := false
				for i, f := range findings {
					if f.Rule != silence.Rule || f.Place.File != s.Place.File {
						continue
					}
					if f.Place.Line != 0 && (f.Place.Line < s.Place.Line || f.Place.Line > s.LastLine()) {
						continue
					}
					used = true
					if holds {
						findings[i].Silenced = silence.Reason
					}
				}
				if remark == nil && !used {
					remark = unusedSilence(silence)
				}
				if remark != nil && !old[m.Version] {
					remark.Place = silence.Place
					about = append(about, *remark)
				}
			}
		}
	}
	for _, q := range head.Queries {
		known := false
		if base != nil {
			before, ok := base.Query(q.Name)
			known = ok && slices.EqualFunc(before.Silence, q.Silence, func(a, b project.Silence) bool { return a.Rule == b.Rule && a.Until == b.Until && a.Reason == b.Reason })
		}
		for _, silence := range q.Silence {
			remark, holds := judge(silence, today)
			used := false
			for i, f := range findings {
				if f.Rule != silence.Rule || f.Place != q.Place {
					continue
				}
				used = true
				if holds {
					findings[i].Silenced = silence.Reason
				}
			}
			// A comment that accepted a finding earlier is an ordinary note now.
			if remark == nil && !used && !known {
				remark = unusedSilence(silence)
			}
			if remark != nil && !known {
				remark.Place = silence.Place
				about = append(about, *remark)
			}
		}
	}
	slices.SortStableFunc(about, func(a, b report.Finding) int {
		return cmp.Or(a.Place.Compare(b.Place), cmp.Compare(a.Rule, b.Rule))
	})
	return append(findings, about...)
}

func unusedSilence(s project.Silence) *report.Finding {
	return &report.Finding{
		Rule: rule.SilenceUnused.Name, Severity: report.Advice, Object: s.Rule,
		Title: "The comment accepts nothing",
		Do:    "Take it out, or name the rule that was found.",
	}
}

// judge returns the finding about a comment, and whether the comment applies nevertheless.
func judge(s project.Silence, today time.Time) (*report.Finding, bool) {
	until, err := time.Parse(time.DateOnly, s.Until)
	switch {
	case s.Rule == "" || err != nil || s.Reason == "":
		return &report.Finding{
			Rule: rule.SilenceUnreadable.Name, Severity: report.Risk, Object: s.Rule,
			Title: "The comment accepts nothing, as it cannot be read",
			Do:    "Write `-- review: allow RULE until YYYY-MM-DD: the reason`.",
		}, false
	case today.UTC().Truncate(24 * time.Hour).After(until): // the day itself counts
		return &report.Finding{
			Rule: rule.SilenceExpired.Name, Severity: report.Risk, Object: s.Rule,
			Title:  "The day until which it was accepted has passed",
			Detail: fmt.Sprintf("It was %s, for this reason: %s", s.Until, s.Reason),
			Do:     "Follow the finding's advice, or give a new day.",
		}, false
	case until.Sub(today) > longest:
		return &report.Finding{
			Rule: rule.SilenceLong.Name, Severity: report.Advice, Object: s.Rule,
			Title: "It is accepted for more than a year",
			Do:    "Give a day on which to review it again.",
		}, true
	}
	return nil, true
}
