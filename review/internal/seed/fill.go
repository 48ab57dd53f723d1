package seed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Fill fills the database of conn, and analyses it. Constraints hold for every row. The project's triggers and rules do
// not run, and row level security hides nothing. A table Fill cannot fill is in the result, with the reason, and no
// error. Materialized views with data are refreshed.
//
// Transaction: one of its own, one for each view, then VACUUM, so conn must not be in one.
func Fill(ctx context.Context, conn *pgx.Conn, spec *Spec, opts Options) (*Result, error) {
	if spec == nil {
		spec = new(Spec)
	}
	if opts.Now.IsZero() {
		opts.Now = time.Now()
	}
	opts.Now = opts.Now.UTC().Truncate(24 * time.Hour)
	f := &filling{conn: conn, spec: spec, opts: opts, filled: make(map[uint32]int64), copies: make(map[string]keyCopy),
		processed: make(map[uint32]bool), postponed: make(map[string]bool), result: new(Result)}
	if err := f.read(ctx); err != nil {
		return nil, err
	}
	if err := f.fill(ctx); err != nil {
		return nil, err
	}
	views, err := f.refresh(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.analyze(ctx, views); err != nil {
		return nil, err
	}
	return f.result, nil
}

// Bent reports whether [Fill] would make other rows without opts.Later.
func Bent(ctx context.Context, conn *pgx.Conn, spec *Spec, opts Options) (bool, error) {
	f := &filling{conn: conn, spec: spec, opts: opts, result: new(Result)}
	err := f.read(ctx)
	return f.bent, err
}

// filling is one call of [Fill].
type filling struct {
	conn *pgx.Conn
	spec *Spec
	opts Options

	tables    []*table
	literals  map[string]*hints
	filled    map[uint32]int64   // rows by table
	copies    map[string]keyCopy // sources of references' keys, by table and columns
	processed map[uint32]bool    // tables filled, or impossible to fill
	unchecked bool               // the server checks no references
	postponed map[string]bool    // references made deferrable
	restore   []string           // the statements to turn everything on again
	rings     []ring
	texts     map[string]map[string]*hints // of checks, by their text
	bent      bool                         // by a constraint of the schema after the change
	result    *Result
}

func (f *filling) read(ctx context.Context) error {
	var err error
	var texts []string
	if f.tables, texts, err = tables(ctx, f.conn); err != nil {
		return err
	}
	f.applyStatistics()
	f.literals = literalsOf(append(texts, f.opts.Queries...))
	for _, name := range slices.Sorted(maps.Keys(f.spec.Tables)) {
		f.missing(name, f.spec.Tables[name])
	}
	for _, t := range f.tables {
		f.soften(t)
	}
	if f.opts.Later == nil {
		return nil
	}
	later, _, err := tables(ctx, f.opts.Later)
	if err != nil {
		return fmt.Errorf("the schema after the change: %w", err)
	}
	names := make(map[uint32]string)
	for _, l := range later {
		names[l.OID] = l.Name
	}
	for _, l := range later {
		if t := f.named(l.Name); t != nil {
			f.keepLater(t, l, names)
		}
	}
	return nil
}

func (f *filling) named(name string) *table {
	i := slices.IndexFunc(f.tables, func(t *table) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return f.tables[i]
}
