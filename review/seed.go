package review

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/catalog"
	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
)

// fill fills the base database with rows. If possible, the rows meet the constraints of the change, so the change
// succeeds. Rows dependent only on base are kept for later reviews.
func (r *review) fill(ctx context.Context, dbs *databases) (*seed.Result, error) {
	opts := r.seedOptions(r.base)
	spec := within(r.spec, dbs.before)
	key, of, err := r.seededKey(ctx, *dbs, spec, opts)
	if err != nil {
		return nil, err
	}
	if !of {
		return r.fillBase(ctx, dbs.base, dbs.migrated, spec, opts)
	}
	d, note, err := r.server.Cached(ctx, key, "seeded", dbs.base, func(d *database.Database) (any, error) {
		return r.fillBase(ctx, d, nil, spec, opts)
	})
	if err != nil {
		return nil, err
	}
	dbs.base = d
	filled := new(seed.Result)
	return filled, json.Unmarshal(note, filled)
}

// fillBase fills a database of base. later is nil if the change adds no constraint.
func (r *review) fillBase(ctx context.Context, d, later *database.Database, spec *seed.Spec, opts seed.Options) (*seed.Result, error) {
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if later != nil {
		after, err := later.Connect(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { _ = after.Close(context.WithoutCancel(ctx)) }()
		opts.Later = after
	}
	return seed.Fill(ctx, conn, spec, opts)
}

// fillOne fills the empty tables, and analyses all.
func (r *review) fillOne(ctx context.Context, d *database.Database, spec *seed.Spec, opts seed.Options) error {
	conn, err := d.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	filled, err := seed.Fill(ctx, conn, spec, opts)
	if err != nil {
		return err
	}
	r.notSeeded(filled)
	return nil
}

// notSeeded reports the empty tables, and the names of the seed file without a table.
func (r *review) notSeeded(filled *seed.Result) {
	r.report.NotSeeded = append(r.report.NotSeeded, filled.Empty()...)
	slices.Sort(r.report.NotSeeded)
	r.report.NotSeeded = slices.Compact(r.report.NotSeeded)
	for _, name := range filled.Missing {
		r.skip("rows", "%s is in the seed file and not in the schema", name)
	}
}

func (r *review) seedOptions(side *project.Side) seed.Options {
	opts := seed.Options{Rows: r.Rows, Now: r.Today}
	for _, q := range side.Queries {
		opts.Queries = append(opts.Queries, q.SQL)
	}
	return opts
}

// readSeed reads the seed file. Without a file, rows are made from the schema.
func (r *review) readSeed() (*seed.Spec, error) {
	if r.Seed == "" {
		return r.readDefaultSeed()
	}
	name := filepath.Join(r.head.Dir, r.Seed)
	if filepath.IsAbs(r.Seed) {
		name = r.Seed
	} else if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		name = filepath.Join(r.Dir, r.Seed) // a file outside the revisions, such as an export from production
	}
	spec, err := seed.ReadFile(name)
	r.seedFiles = append(r.seedFiles, name)
	if err != nil || spec.Statistics == nil {
		return spec, err
	}
	// Statistics say nothing about values: the description does.
	described, err := r.readDefaultSeed()
	if err != nil {
		return nil, err
	}
	if described.Statistics == nil {
		described.Statistics = spec.Statistics
	}
	return described, nil
}

// readDefaultSeed reads the file seed.yaml of head, if there is one.
func (r *review) readDefaultSeed() (*seed.Spec, error) {
	for _, dir := range []string{path.Dir(r.head.MigrationsDir), "."} {
		name := filepath.Join(r.head.Dir, dir, "seed.yaml")
		if _, err := os.Stat(name); err == nil {
			r.seedFiles = append(r.seedFiles, name)
			return seed.ReadFile(name)
		}
	}
	return new(seed.Spec), nil
}

// within returns the part of the seed file about tables and columns of a schema: the file is head's, and also describes
// new ones.
func within(spec *seed.Spec, schema *catalog.Catalog) *seed.Spec {
	narrow := *spec
	narrow.Tables = maps.Clone(spec.Tables)
	maps.DeleteFunc(narrow.Tables, func(name string, _ seed.Table) bool { return !schema.HasTable(name) })
	for name, t := range narrow.Tables {
		lacks := func(column string, _ seed.Column) bool { return !schema.HasColumn(name, column) }
		t.Columns = maps.Clone(t.Columns)
		maps.DeleteFunc(t.Columns, lacks)
		t.Kinds = slices.Clone(t.Kinds)
		for i, k := range t.Kinds {
			t.Kinds[i].Set = maps.Clone(k.Set)
			maps.DeleteFunc(t.Kinds[i].Set, lacks)
		}
		t.References = slices.DeleteFunc(slices.Clone(t.References), func(ref seed.Reference) bool {
			to := ref.To
			if len(to) == 0 {
				to = ref.Columns
			}
			return slices.ContainsFunc(ref.Columns, func(c string) bool { return !schema.HasColumn(name, c) }) ||
				slices.ContainsFunc(to, func(c string) bool { return !schema.HasColumn(ref.Table, c) })
		})
		narrow.Tables[name] = t
	}
	return &narrow
}

// small returns a function to report tables that stay small in every deployment of the project: the seed file gives
// them fewer rows than count as large.
func (r *review) small(filled *seed.Result) func(table string) bool {
	large := seed.LargeFrom(r.spec, seed.Options{Rows: r.Rows})
	return func(table string) bool {
		said, named := r.spec.Tables[table]
		return named && said.Rows != nil && *said.Rows > 0 && filled.Rows(table) < large
	}
}
