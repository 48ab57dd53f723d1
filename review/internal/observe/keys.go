package observe

import (
	"context"

	"github.com/jackc/pgx/v5"
	parser "github.com/pganalyze/pg_query_go/v6"

	"github.com/flowfabric/flowfabric-go/review/internal/ddl"
)

// keys are the foreign keys of base: the locks of an insert into a table, and of a delete from it.
type keys struct {
	inserts, deletes map[uint32]held
	tables           map[string]uint32 // by name; a quoted name is not found
}

func (o *observation) readKeys(ctx context.Context) (keys, error) {
	k := keys{inserts: map[uint32]held{}, deletes: map[uint32]held{}, tables: map[string]uint32{}}
	for oid, r := range o.old {
		k.tables[r.name] = oid
	}
	rows, err := o.watch.Query(ctx, `SELECT conrelid, confrelid, confdeltype IN ('c', 'n', 'd') FROM pg_constraint WHERE contype = 'f'`)
	if err != nil {
		return k, err
	}
	var child, parent uint32
	var changes bool
	_, err = pgx.ForEachRow(rows, []any{&child, &parent, &changes}, func() error {
		add := func(to map[uint32]held, table, locked uint32, m mode) {
			if to[table] == nil {
				to[table] = held{}
			}
			to[table][locked] = max(to[table][locked], m)
		}
		add(k.inserts, child, parent, rowShare)
		if changes {
			add(k.deletes, parent, child, rowExclusive)
		} else {
			add(k.deletes, parent, child, rowShare)
		}
		return nil
	})
	return k, err
}

// of returns the locks a statement's inserts and deletes take by foreign keys, one step far.
func (k keys) of(sql string) held {
	all := held{}
	tree, err := ddl.Parse(sql)
	if err != nil {
		return all
	}
	tree.Writes(func(target *parser.RangeVar, erases bool) {
		name := target.Relname
		if target.Schemaname != "" && target.Schemaname != "public" {
			name = target.Schemaname + "." + name
		}
		from := k.inserts
		if erases {
			from = k.deletes
		}
		all.add(from[k.tables[name]])
	})
	return all
}
