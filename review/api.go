package review

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/api"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// startAPI compares the generated packages while the databases are made, since it needs none. made waits for the
// packages and takes their statements, wait waits for the result of the comparison.
func (r *review) startAPI(ctx context.Context) (made func() error, wait func()) {
	results := make([]apiResult, max(1, len(r.head.Packages)))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range results {
			base, head := r.base, r.head
			if len(r.head.Packages) > 0 {
				head = r.head.Only(r.head.Packages[i])
				base = r.base.Only(r.base.Counterpart(head.SQLC))
			}
			results[i].dir = filepath.Join(filepath.Dir(r.head.Dir), "generated", fmt.Sprint(i))
			results[i].Result, results[i].err = api.Check(ctx, base, head, results[i].dir)
			results[i].of, results[i].was = head.SQLC, base.SQLC
		}
	}()
	made = func() error {
		<-done
		for _, result := range results {
			if err := r.takeMade(result); err != nil {
				return err
			}
		}
		return nil
	}
	return made, func() {
		<-done
		for _, result := range results {
			r.takeAPI(result)
		}
		r.removedPackages()
	}
}

// apiResult is the comparison of one package.
type apiResult struct {
	*api.Result
	err     error
	of, was *project.SQLC // head's package and base's
	dir     string        // has the generated packages, below base and head
}

// takeMade takes the statements of the generated packages. The review examined the statements of its own reading, and
// sqlc's may be others.
func (r *review) takeMade(result apiResult) error {
	of := "base"
	if result.Result != nil && result.Same {
		of = "head"
	}
	before, err := r.base.TakeMade(result.was, filepath.Join(result.dir, of), r.reading.Stays)
	if err != nil {
		return err
	}
	now, err := r.head.TakeMade(result.of, filepath.Join(result.dir, "head"), r.reading.Stays)
	for _, q := range now {
		old := slices.ContainsFunc(before, func(b project.Query) bool { return b.Name == q.Name && b.SQL == q.SQL })
		r.find(r.reading.Findings(q, old)...)
	}
	return err
}

// takeAPI adds the result to the report. In a project with several packages, names begin with the package's.
func (r *review) takeAPI(result apiResult) {
	prefix := ""
	if len(r.head.Packages) > 1 || len(r.base.Packages) > 1 && result.of != nil {
		prefix = result.of.Label + "."
	}
	if result.err != nil {
		r.incomplete(report.Place{}, "The review could not compare the generated packages", result.err.Error())
		return
	}
	for _, c := range result.Changes {
		c.Object = prefix + c.Object
		r.report.API = append(r.report.API, c)
	}
	for _, f := range result.Findings {
		if f.Rule == rule.GenerateFails.Name && slices.ContainsFunc(r.report.Findings, func(other report.Finding) bool {
			return other.Rule == f.Rule && other.Detail == f.Detail
		}) {
			continue // sqlc generates all packages of a configuration, or none
		}
		if prefix != "" && f.Object != result.of.Package {
			f.Object = prefix + f.Object
		}
		r.find(f)
	}
	for _, line := range result.Skipped {
		if prefix != "" {
			line = fmt.Sprintf("package %s: %s", result.of.Label, line)
		}
		r.skip("API", "%s", line)
	}
}

// removedPackages reports the packages generated only by base.
func (r *review) removedPackages() {
	for _, p := range r.base.Packages {
		if p.Out == "" || r.head.Counterpart(p) != nil {
			continue
		}
		r.find(report.Finding{
			Rule: rule.APIRemoved.Name, Severity: report.Risk, Place: report.Place{File: p.Config}, Object: cmp.Or(p.Package, p.Out),
			Title: fmt.Sprintf("The generated package `%s` is gone", p.Package),
			Do:    "Change the programs that use it in the same commit, and inform the owners of other programs.",
		})
	}
}
