package seed

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// applyStatistics gives each table its share of the rows in production, and columns their distributions. The seed
// file's word about a column goes first.
func (f *filling) applyStatistics() {
	if f.spec.Statistics == nil {
		return
	}
	spec := *f.spec
	spec.Tables = maps.Clone(spec.Tables)
	if spec.Tables == nil {
		spec.Tables = make(map[string]Table)
	}
	whole, factor := f.opts.rows(f.spec)
	total, sum := float64(whole), 0.0
	for _, t := range f.tables {
		if s := f.spec.Statistics.tables[relation{t.Schema, t.Bare}]; s != nil {
			t.statistics = s
			sum += max(0, s.rows)
		}
	}
	// A table large by itself also counts as large beside larger ones, and small ones keep their size.
	least := max(fewRows, min(float64(LargeFrom(f.spec, f.opts)), 2*total/float64(len(f.tables)+1)))
	for _, t := range f.tables {
		said := spec.Tables[t.Name]
		if t.statistics == nil || t.statistics.rows < 0 {
			if said.Rows != nil {
				said.Rows = new(int(float64(*said.Rows) * factor))
				spec.Tables[t.Name] = said
			}
			continue
		}
		rows := t.statistics.rows
		n := float64(fewRows) // an empty table gets some rows, so effects on it are seen
		if rows > 0 {
			n = max(1, min(rows, least), rows/sum*total)
		}
		said.Rows = new(int(n))
		spec.Tables[t.Name] = said
		t.scale = 1
		if rows > 0 {
			t.scale = n / rows
		}
	}
	// The numbers already belong to the database to fill.
	spec.Rows, f.opts.Rows = whole, 0
	f.spec = &spec
}

// fewRows is the least number of rows of a table with as many in production.
const fewRows = 20

// Sized reports whether the file or the statistics give the number of rows of a table, named as in SQL.
func (s *Spec) Sized(table string) bool {
	if s.Tables[table].Rows != nil {
		return true
	}
	if s.Statistics == nil {
		return false
	}
	name := relation{"public", table}
	if schema, bare, ok := strings.Cut(table, "."); ok {
		name = relation{schema, bare}
	}
	known := s.Statistics.tables[relation{strings.Trim(name.schema, `"`), strings.Trim(name.table, `"`)}]
	return known != nil && known.rows >= 0
}

// statistic returns the distribution of a column in production; nil if unknown.
func (t *table) statistic(column string) *columnStatistics {
	if t.statistics == nil {
		return nil
	}
	return t.statistics.columns[column]
}

// distinct returns how many different values of n a column has: few values are the same in every size of the table,
// many are in proportion to it.
func (s *columnStatistics) distinct(rows int64, scale float64) int64 {
	d := s.NDistinct
	switch {
	case d == 0:
		return 0
	case d < 0:
		d = -d * float64(rows)
	case d > float64(rows)/10:
		d = max(float64(rows)/10, d*scale)
	}
	return max(1, min(int64(d), rows))
}

// number returns a whole number from 0 to below distinct, as frequent as the values in production: the most frequent
// are the lowest, and the others are equally frequent.
func (s *columnStatistics) number(distinct string, salt uint32) string {
	rest := chance(salt)
	shares := 1 - s.NullFrac
	if len(s.Frequent) == 0 || shares <= 0 {
		return fmt.Sprintf("floor((%s) * %s)::bigint", distinct, rest)
	}
	var bounds []string
	sum := 0.0
	for _, f := range s.Frequent {
		sum = min(1, sum+f/shares)
		bounds = append(bounds, strconv.FormatFloat(sum, 'f', 6, 64))
	}
	k := len(bounds)
	left := strconv.FormatFloat(max(1-sum, 1e-6), 'f', 6, 64)
	return fmt.Sprintf("CASE WHEN %s < %s THEN least(width_bucket(%s, ARRAY[%s]::float8[]), (%s) - 1) ELSE least(%d + floor(greatest((%s) - %d, 1) * (%s - %s) / %s)::bigint, (%s) - 1) END",
		rest, bounds[k-1], rest, strings.Join(slices.Compact(bounds), ", "), distinct, k, distinct, k, rest, bounds[k-1], left, distinct)
}

// weights returns the weights of n values, the most frequent first.
func (s *columnStatistics) weights(n int) []float64 {
	if s == nil || len(s.Frequent) == 0 {
		return falling(n)
	}
	weights := make([]float64, n)
	rest := 1 - s.NullFrac
	for i := range weights {
		if i < len(s.Frequent) {
			weights[i] = max(s.Frequent[i], 1e-6)
			rest -= s.Frequent[i]
		}
	}
	for i := len(s.Frequent); i < n; i++ {
		weights[i] = max(rest/float64(n-len(s.Frequent)), 1e-6)
	}
	return weights
}
