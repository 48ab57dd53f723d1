package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Verdict is the overall result of a report.
type Verdict string

// The verdicts. Blocked: the change must not be merged as it is. Incomplete: a part of the project was not read, so the
// absence of findings says little.
const (
	Clean      Verdict = "clean"
	Advisory   Verdict = "advisory"
	Blocked    Verdict = "blocked"
	Incomplete Verdict = "incomplete"
)

// Exit codes of a command printing a report. 1 and 2 are left for a failed command or a wrong call: neither must look
// like a review with few findings.
const (
	ExitClean      = 0
	ExitAdvisory   = 8
	ExitBlocked    = 9
	ExitIncomplete = 10
)

// Verdict returns the overall result of the findings: [Blocked] if one is failOn or worse, else [Incomplete] if
// something was not read, else [Advisory] if one is more than a note. A finding that a comment accepts does not count.
func (r *Report) Verdict(failOn Severity) Verdict {
	worst := Note
	for _, f := range r.Findings {
		if f.Silenced == "" {
			worst = max(worst, f.Severity)
		}
	}
	switch {
	case worst >= max(failOn, Advice):
		return Blocked
	case len(r.NotRead) > 0:
		return Incomplete
	case worst > Note:
		return Advisory
	}
	return Clean
}

// ExitCode is the code of a command with the verdict.
func (v Verdict) ExitCode() int {
	switch v {
	case Clean:
		return ExitClean
	case Advisory:
		return ExitAdvisory
	case Incomplete:
		return ExitIncomplete
	}
	return ExitBlocked
}

// ParseSeverity reads the name of a severity: "note", "advice", "risk", "blocking".
func ParseSeverity(name string) (Severity, error) {
	if at := slices.Index(severityNames[:], name); at >= 0 {
		return Severity(at), nil
	}
	return 0, fmt.Errorf("%q is no severity: one of %s", name, strings.Join(severityNames[:], ", "))
}

// MarshalText gives the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads its name.
func (s *Severity) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSeverity(string(text))
	return err
}

// WriteJSON writes the report with its verdict. Empty lists are written as [].
func WriteJSON(w io.Writer, r *Report, failOn Severity) error {
	full := *r
	full.Migrations = present(full.Migrations)
	full.Findings = present(full.Findings)
	full.Catalog, full.API, full.Plans = present(full.Catalog), present(full.API), present(full.Plans)
	full.Statements, full.NotRead = present(full.Statements), present(full.NotRead)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Verdict Verdict `json:"verdict"`
		*Report
	}{r.Verdict(failOn), &full})
}

func present[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
