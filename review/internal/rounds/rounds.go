package rounds

import (
	"context"
	"errors"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/catalog"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rule"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// Input has the parameters of [Check].
type Input struct {
	// Database holds base's schema with rows. Check changes it.
	Database *database.Database
	// Table is dbmate's.
	Table string
	// New are the migrations of head that base does not have, in order.
	New []project.Migration
}

// Check runs the new migrations up, down and up again.
func Check(ctx context.Context, in Input) ([]report.Finding, error) {
	if len(in.New) == 0 {
		return nil, nil
	}
	r := &round{Input: in}
	before, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	if err := in.Database.Migrate(ctx, in.New, in.Table); err != nil {
		return r.refused(ctx, err, rule.MigrationFailsOnRows.Name, "A database with rows refuses the migration",
			"Make the rows fit first, in batches, in a migration of their own; or make the statement take the rows as they are.")
	}
	up, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	back := r.reversible()
	if len(back) < len(in.New) {
		r.compareRows(before, up)
	}
	for range back {
		if err := in.Database.Rollback(ctx, back, in.Table); err != nil {
			return r.refused(ctx, err, rule.DownFails.Name, "The way back is refused",
				"Correct the statements "+in.New[0].Tool.Down()+", or give the reason for having no way back: `-- irreversible: …`.")
		}
	}
	if len(back) == 0 {
		return r.findings, nil
	}
	down, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	if len(back) == len(in.New) {
		r.compareRows(before, down)
		r.compareSchemas(rule.DownDiffers.Name, "Up and down do not lead back to the same schema", before, down)
	}
	if err := in.Database.Migrate(ctx, in.New, in.Table); err != nil {
		return r.refused(ctx, err, rule.UpAgainFails.Name, "After the way back the migration cannot be applied again",
			"Let the way back remove everything that the way up makes.")
	}
	again, err := r.look(ctx)
	if err != nil {
		return nil, err
	}
	r.compareSchemas(rule.UpAgainDiffers.Name, "Applied again after the way back, the migrations make another schema", up, again)
	return r.findings, nil
}

type round struct {
	Input
	findings []report.Finding
}

func (r *round) add(f report.Finding) { r.findings = append(r.findings, f) }

// state is the compared state.
type state struct {
	schema *catalog.Catalog
	rows   rows
}

func (r *round) look(ctx context.Context) (state, error) {
	conn, err := r.Database.Connect(ctx)
	if err != nil {
		return state{}, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var s state
	if s.schema, err = catalog.Read(ctx, conn, r.Table); err != nil {
		return state{}, err
	}
	s.rows, err = count(ctx, conn, r.Table)
	return s, err
}

// refused turns a refusal into a finding; later steps cannot be checked.
func (r *round) refused(ctx context.Context, err error, broken, title, do string) ([]report.Finding, error) {
	refusal, ok := errors.AsType[*database.MigrationError](err)
	if !ok || ctx.Err() != nil {
		return nil, err
	}
	r.add(report.Finding{
		Rule: broken, Severity: report.Blocking, Place: refusal.Place, Object: refusal.Migration.Version,
		Title: title, Detail: refusal.Said(), Do: do,
	})
	return r.findings, nil
}

// reversible returns the newest migrations that have a way back, and reports the others.
func (r *round) reversible() []project.Migration {
	first := 0
	for i, m := range r.New {
		place := report.Place{File: m.File}
		switch {
		case m.Irreversible != "":
			first = i + 1
			r.add(report.Finding{
				Rule: rule.Irreversible.Name, Severity: report.Note, Place: place, Object: m.Version,
				Title: "The migration is not taken back", Detail: "Its reason: " + m.Irreversible,
			})
		case len(m.Down.Statements) == 0 && len(m.Up.Statements) > 0:
			first = i + 1
			if m.Tool != "" && !m.Tool.HasDowns() {
				continue
			}
			r.add(report.Finding{
				Rule: rule.DownMissing.Name, Severity: report.Risk, Place: place, Object: m.Version,
				Title: "The migration has no way back, and does not say why",
				Do:    "Write the statements " + m.Tool.Down() + ", or give the reason: `-- irreversible: …`.",
			})
		}
	}
	return r.New[first:]
}

func (r *round) compareSchemas(broken, title string, before, after state) {
	differences := catalog.Diff(before.schema, after.schema)
	if len(differences) == 0 {
		return
	}
	var objects []string
	for _, d := range differences {
		objects = append(objects, d.Object)
	}
	place := project.Locate(r.New, strings.Join(objects, " "), true)
	if place.Line == 0 {
		place = project.Locate(r.New, strings.Join(objects, " "), false)
	}
	r.add(report.Finding{
		Rule: broken, Severity: report.Risk, Place: place,
		Object: differences[0].Object,
		Title:  title, Detail: catalog.List(differences),
		Do: "Correct the statements " + r.New[0].Tool.Down() + ": a rollback leaves a schema that no revision describes.",
	})
}
