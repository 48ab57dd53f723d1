package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"

	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Result has the differences between the generated packages.
type Result struct {
	Changes  []report.Change
	Findings []report.Finding
	Skipped  []string
	// Same: sqlc is given the same files for both sides, so only head's package was generated.
	Same bool
}

// Check generates and compares both sides' packages below dir.
func Check(ctx context.Context, base, head *project.Side, dir string) (*Result, error) {
	r := &Result{}
	if head.SQLC == nil || head.SQLC.Out == "" {
		r.Skipped = append(r.Skipped, "sqlc generates no Go package")
		return r, nil
	}
	after, err := r.generated(ctx, head, dir)
	var refusal *refusedError
	if errors.As(err, &refusal) {
		return r, r.refused(ctx, base, head, refusal, dir)
	}
	if err != nil {
		return nil, err
	}
	if after == nil {
		return r, nil
	}
	if base.SQLC == nil || base.SQLC.Out == "" {
		r.Skipped = append(r.Skipped, "the base has no generated package to compare with")
		return r, nil
	}
	if r.Same, err = sameInput(ctx, base, head); err != nil || r.Same {
		return r, err
	}
	before, err := r.generated(ctx, base, dir)
	if errors.As(err, &refusal) {
		r.Skipped = append(r.Skipped, "sqlc refuses the queries of the base: "+firstLine(refusal.said))
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if before == nil {
		return r, nil
	}
	compare(r, before, after, locator{base, head, project.New(base, head)})
	return r, nil
}

// refused reports queries of head refused by sqlc. If sqlc refuses base's, too, the change is not the reason; the
// database tries the queries all the same.
func (r *Result) refused(ctx context.Context, base, head *project.Side, refusal *refusedError, dir string) error {
	f := report.Finding{
		Rule: rule.GenerateFails.Name, Severity: report.Blocking, Place: refusal.place, Object: head.SQLC.Package,
		Title: "sqlc refuses the queries", Detail: "It says:\n\n" + indented(refusal.said),
		Do: "Change the query together with the schema.",
	}
	if base.SQLC != nil && base.SQLC.Out != "" {
		var before *refusedError
		_, err := generate(ctx, base, dir)
		if err != nil && !errors.As(err, &before) {
			return err
		}
		if before != nil {
			f.Severity, f.Title, f.Do = report.Note, "sqlc refuses the queries, as it did before the change", ""
		}
	}
	r.Findings = append(r.Findings, f)
	r.Skipped = append(r.Skipped, "sqlc refuses the queries, so nothing was compared")
	return nil
}

// generated returns the package of one side. Nil: there is none, and the reason is in r.
func (r *Result) generated(ctx context.Context, side *project.Side, dir string) (*goPackage, error) {
	made, err := generate(ctx, side, dir)
	if errors.Is(err, errNoGenerator) {
		made = side.Dir
		if !hasGo(side) {
			r.Skipped = append(r.Skipped, "sqlc was not found, and no generated package is committed")
			return nil, nil
		}
		r.Skipped = append(r.Skipped, "sqlc was not found, so the committed packages are compared")
		r.Skipped = slices.Compact(r.Skipped)
	} else if err != nil {
		return nil, err
	}
	if made != side.Dir && hasGo(side) {
		stale, err := differs(side, made)
		if err != nil {
			return nil, err
		}
		if stale != "" && strings.HasSuffix(made, "head") {
			r.Findings = append(r.Findings, report.Finding{
				Rule: rule.GeneratedCodeStale.Name, Severity: report.Risk, Place: report.Place{File: stale}, Object: side.SQLC.Package,
				Title: "The committed code differs from the generated one", Do: "Run `sqlc generate`, and commit the result.",
			})
		}
	}
	return load(made, side.SQLC)
}

// compare reports the differences found by apidiff, each name once: the generated interface has the methods of its
// type.
func compare(r *Result, before, after *goPackage, at locator) {
	seen := map[string]bool{}
	for _, c := range apidiff.Changes(before.types, after.types).Changes {
		name, what, found := strings.Cut(c.Message, ": ")
		if !found {
			continue
		}
		name = strings.TrimPrefix(strings.NewReplacer("(*Queries).", "", "Querier.", "").Replace(name), "Queries.")
		if seen[name+what] || what == "changed" || strings.HasSuffix(what, "comparable, new is not") { // such as by a column of JSON
			continue
		}
		seen[name+what] = true
		change := report.Change{Kind: kind(c.Message, name), Object: name, Place: at.place(name)}
		was, is := before.declared(name), after.declared(name)
		f := report.Finding{Severity: report.Risk, Place: change.Place, Object: name, Do: "Change the programs that use it in the same commit, and inform the owners of other programs."}
		switch {
		case what == "added" || strings.HasPrefix(what, "added "):
			change.After = shown(is)
		case what == "removed" || strings.HasPrefix(what, "removed "):
			change.Before = shown(was)
			f.Rule, f.Title = rule.APIRemoved.Name, fmt.Sprintf("`%s` is gone from the generated package", name)
			if !before.usedByQueries(name, at.base, at.head) {
				f.Severity, f.Do = report.Note, ""
				f.Detail = "No query that is still there uses it. Other programs that do must be changed in the same commit."
			}
		default:
			change.Before, change.After = split(what)
			f.Rule, f.Title = rule.APIChanged.Name, fmt.Sprintf("`%s` has another type", name)
			f.Detail = fmt.Sprintf("It was `%s` and becomes `%s`.", change.Before, change.After)
			if flips(change.Before, change.After) {
				f.Rule, f.Title = rule.APINullability.Name, fmt.Sprintf("`%s` may be NULL from now on", name)
				if nullable(change.Before) {
					f.Title = fmt.Sprintf("`%s` can no longer be NULL", name)
				}
			}
		}
		r.Changes = append(r.Changes, change)
		if f.Rule != "" && !(strings.Contains(name, ".") && seen[owner(name)+"removed"]) {
			r.Findings = append(r.Findings, f)
		}
	}
	slices.SortStableFunc(r.Changes, func(a, b report.Change) int { return strings.Compare(a.Object, b.Object) })
	slices.SortStableFunc(r.Findings, func(a, b report.Finding) int { return strings.Compare(a.Object, b.Object) })
}

func owner(name string) string {
	before, _, _ := strings.Cut(name, ".")
	return before
}

func kind(message, name string) string {
	switch {
	case strings.HasPrefix(message, "(*Queries).") || strings.HasPrefix(message, "Queries.") || strings.HasPrefix(message, "Querier."):
		return "function"
	case strings.Contains(name, "."):
		return "field"
	}
	return "name"
}

// split reads apidiff's "changed from A to B".
func split(what string) (before, after string) {
	rest := strings.TrimPrefix(what, "changed from ")
	if rest == what {
		return "", what
	}
	before, after, _ = strings.Cut(rest, " to ")
	return before, after
}

// bare removes the pointer, or the type for a value or NULL.
func bare(name string) string {
	name = strings.TrimPrefix(name, "*")
	if at := strings.LastIndexAny(name, "./"); at >= 0 {
		name = name[at+1:]
	}
	name = strings.ToLower(strings.TrimPrefix(name, "Null"))
	switch name {
	case "text", "varchar":
		return "string"
	case "timestamptz", "timestamp", "date":
		return "time"
	case "int2":
		return "int16"
	case "int4":
		return "int32"
	case "int8":
		return "int64"
	case "float4":
		return "float32"
	case "float8":
		return "float64"
	}
	return name
}

func nullable(name string) bool {
	return strings.HasPrefix(name, "*") || strings.Contains(name, "pgtype.") || strings.Contains(name, ".Null") || strings.HasPrefix(name, "Null")
}

func flips(before, after string) bool {
	return nullable(before) != nullable(after) && bare(before) == bare(after)
}

func shown(text string) string {
	if text == "" {
		return "it"
	}
	return text
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}
