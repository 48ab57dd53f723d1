package seed

import (
	"slices"
)

// quotas returns how many rows each table gets.
func (f *filling) quotas() map[uint32]int64 {
	total, factor := f.opts.rows(f.spec)
	left := total
	quotas := make(map[uint32]int64)
	var open []*table
	sharing := 0
	for _, t := range f.tables {
		if rows := f.spec.Tables[t.Name].Rows; rows != nil {
			n := int64(float64(*rows) * factor)
			if *rows > 0 {
				n = max(1, n)
			}
			quotas[t.OID] = n
			left -= int(n)
			continue
		}
		if f.filled[t.OID] == 0 {
			open = append(open, t)
		}
		// Tables filled by an earlier call keep their share: a later table gets no more. A few rows are a migration's.
		if f.filled[t.OID] == 0 || f.filled[t.OID] >= 100 {
			sharing++
		}
	}
	for _, t := range open {
		quotas[t.OID] = max(int64(left)/int64(sharing), 20)
	}
	return quotas
}

// order puts referenced tables before referring ones. If tables refer to each other, a nullable reference is filled
// later.
func (f *filling) order() []*table {
	var sorted []*table
	placed := make(map[uint32]bool)
	ready := func(t *table, strict bool) bool {
		for _, r := range t.references {
			if r.To != t.OID && !placed[r.To] && (strict || !r.soft && t.required(r)) {
				return false
			}
		}
		return true
	}
	for len(sorted) < len(f.tables) {
		i := -1
		for _, strict := range []bool{true, false} {
			if i < 0 {
				i = slices.IndexFunc(f.tables, func(t *table) bool { return !placed[t.OID] && ready(t, strict) })
			}
		}
		if i < 0 {
			i = slices.IndexFunc(f.tables, func(t *table) bool { return !placed[t.OID] })
		}
		placed[f.tables[i].OID] = true
		sorted = append(sorted, f.tables[i])
	}
	return sorted
}

// required reports whether no column of the reference may be null.
func (t *table) required(r reference) bool {
	return !slices.ContainsFunc(r.Columns, func(name string) bool { return !t.column(name).NotNull })
}
