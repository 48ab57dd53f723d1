package seed

import (
	"maps"
	"slices"
	"strings"
)

// missing records the tables and columns the seed file names and the schema does not have.
func (f *filling) missing(name string, said Table) {
	t := f.named(name)
	if t == nil {
		f.result.Missing = append(f.result.Missing, name)
		return
	}
	var columns []string
	columns = slices.AppendSeq(columns, maps.Keys(said.Columns))
	for _, k := range said.Kinds {
		columns = slices.AppendSeq(columns, maps.Keys(k.Set))
	}
	for _, r := range said.References {
		columns = append(columns, r.Columns...)
		to := f.named(r.Table)
		if to == nil {
			f.result.Missing = append(f.result.Missing, r.Table)
			continue
		}
		for _, column := range r.to() {
			if to.column(column) == nil {
				f.result.Missing = append(f.result.Missing, r.Table+"."+column)
			}
		}
	}
	slices.Sort(columns)
	for _, column := range slices.Compact(columns) {
		if t.column(column) == nil {
			f.result.Missing = append(f.result.Missing, name+"."+column)
		}
	}
}

// soften adds references without a constraint: from the file, and columns named like customer_id if there is a table
// customer or customers with a key of one column of the type.
func (f *filling) soften(t *table) {
	// References of several columns choose first; others with a shared column follow.
	slices.SortStableFunc(t.references, func(a, b reference) int { return len(b.Columns) - len(a.Columns) })
	for _, said := range f.spec.Tables[t.Name].References {
		if to := f.named(said.Table); to != nil && t.hasAll(said.Columns) && to.hasAll(said.to()) {
			t.references = append(t.references, reference{Table: t.OID, Name: said.Table, Columns: said.Columns, To: to.OID, ToNames: said.to(), once: said.Once, soft: true})
		}
	}
	for _, c := range t.columns {
		stem, ok := strings.CutSuffix(c.Name, "_id")
		if !ok || t.referred(c.Name) {
			continue
		}
		for _, plural := range []string{stem + "s", stem, stem + "es", strings.TrimSuffix(stem, "y") + "ies"} {
			to := f.beside(t, plural)
			if to == nil || to == t {
				continue
			}
			for _, k := range to.keys {
				if key := to.column(k.first()); k.Primary && len(k.Columns) == 1 && key != nil && key.Base == c.Base && (key.Name == "id" || key.Name == c.Name) {
					t.references = append(t.references, reference{Table: t.OID, Name: plural, Columns: []string{c.Name}, To: to.OID, ToNames: k.Columns, soft: true})
				}
			}
			break
		}
	}
}

func (k key) first() string {
	if len(k.Columns) == 0 {
		return ""
	}
	return k.Columns[0]
}

func (t *table) referred(name string) bool {
	return slices.ContainsFunc(t.references, func(r reference) bool { return slices.Contains(r.Columns, name) })
}

// keepLater adds the constraints after the change on earlier columns of the table.
func (f *filling) keepLater(t, later *table, names map[uint32]string) {
	for _, c := range later.columns {
		if mine := t.column(c.Name); mine != nil && c.NotNull && !mine.NotNull {
			mine.NotNull, f.bent = true, true
		}
	}
	for _, k := range later.keys {
		if t.hasAll(k.Columns) && !slices.ContainsFunc(t.keys, func(mine key) bool { return slices.Equal(mine.Columns, k.Columns) }) {
			t.keys, f.bent = append(t.keys, k), true
		}
	}
	for _, r := range later.references {
		to := f.named(names[r.To])
		if to == nil || !t.hasAll(r.Columns) || !to.hasAll(r.ToNames) ||
			slices.ContainsFunc(t.references, func(mine reference) bool { return slices.Equal(mine.Columns, r.Columns) }) {
			continue
		}
		r.Table, r.To, r.soft = t.OID, to.OID, true
		t.references, f.bent = append(t.references, r), true
	}
	for _, c := range later.checks {
		if c.Name != partitionCheck && t.hasAll(c.Columns) && !slices.ContainsFunc(t.checks, func(mine check) bool { return mine.Text == c.Text }) {
			c.later = true
			t.checks, f.bent = append(t.checks, c), true
		}
	}
}

// beside returns the table of a name in the schema of t.
func (f *filling) beside(t *table, name string) *table {
	i := slices.IndexFunc(f.tables, func(o *table) bool { return o.Schema == t.Schema && o.Bare == name })
	if i < 0 {
		return nil
	}
	return f.tables[i]
}
