package review

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// broke turns the failure of a part into a finding, so the other parts are still reported. It returns the error if
// nothing more can run: ctx ended, or the server does not answer.
func (r *review) broke(ctx context.Context, part string, err error) error {
	if err == nil {
		return nil
	}
	if _, alive := r.server.Create(ctx, "alive"); alive != nil {
		return errors.Join(fmt.Errorf("%s: %w", part, err), ctx.Err())
	}
	r.incomplete(report.Place{}, "The review could not "+part, err.Error())
	return nil
}

func (r *review) incomplete(place report.Place, title, detail string) {
	r.find(report.Finding{
		Rule: rule.ReviewIncomplete.Name, Severity: report.Risk, Place: place,
		Title: title, Detail: detail + "\n\nThe rest of the report does not depend on it.",
		Do: "Remove the reason, or look at this part by hand.",
	})
}

// incompleteFirst orders failed parts before everything else.
func incompleteFirst(a, b report.Finding) int {
	switch first := rule.ReviewIncomplete.Name; {
	case a.Rule == first && b.Rule != first:
		return -1
	case a.Rule != first && b.Rule == first:
		return 1
	}
	return 0
}

// baseRefused reports a base with failing migrations. headErr is the failure of head's migrations on an empty database;
// nil if they were not applied, because they begin with base's.
func (r *review) baseRefused(ctx context.Context, err, headErr error) error {
	refusal, ok := errors.AsType[*database.MigrationError](err)
	if !ok || ctx.Err() != nil {
		return fmt.Errorf("the database of %s cannot be made: %w", r.report.Base, err)
	}
	r.incomplete(refusal.Place, fmt.Sprintf("The database of %s cannot be made", r.report.Base),
		fmt.Sprintf("PostgreSQL says about `%s`: %s. So the change was judged by its text and by the generated package only: nothing was run, compared or planned.",
			refusal.Migration.File, refusal.Reason()))
	if headErr != nil {
		return r.refused(ctx, headErr)
	}
	return nil
}

// noted turns findings of base, about files unchanged by the change, into notes. Another file can be the reason for a
// new finding: a gap in the numbers is found at the file after the gap.
func (r *review) noted(findings []report.Finding) []report.Finding {
	var all []report.Finding
	for _, f := range findings {
		before := slices.ContainsFunc(r.base.Findings, func(was report.Finding) bool {
			return was.Rule == f.Rule && was.Place == f.Place && was.Object == f.Object && was.Title == f.Title && was.Detail == f.Detail
		})
		if f.Severity > report.Note && before && r.unchanged(f.Place.File) {
			f.Severity, f.Detail = report.Note, f.Detail+" The change leaves the file as it is."
		}
		all = append(all, f)
	}
	return all
}

// unchanged reports whether base has the same file.
func (r *review) unchanged(file string) bool {
	if file == "" {
		return false
	}
	was, err := os.ReadFile(filepath.Join(r.base.Dir, file))
	is, headErr := os.ReadFile(filepath.Join(r.head.Dir, file))
	return err == nil && headErr == nil && bytes.Equal(was, is)
}
