package review

import (
	"fmt"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/review/internal/seed"
	"github.com/flowfabric/flowfabric-go/review/internal/trust"
)

// checkExpressions refuses a seed file with a text other than a single, harmless expression.
func checkExpressions(spec *seed.Spec) error {
	for _, name := range slices.Sorted(maps.Keys(spec.Tables)) {
		table := spec.Tables[name]
		all := []seed.Columns{table.Columns}
		for _, kind := range table.Kinds {
			all = append(all, kind.Set)
		}
		for _, columns := range all {
			for _, column := range slices.Sorted(maps.Keys(columns)) {
				sql := columns[column].SQL
				if sql == "" {
					continue
				}
				if err := trust.Expression(sql); err != nil {
					return fmt.Errorf("the seed file's sql of column %s of table %s: %w", column, name, err)
				}
			}
		}
	}
	return nil
}
