package seed

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// sort is a type of the database.
type sort struct {
	OID      uint32
	Name     string // in SQL syntax, with its schema
	Plain    string // typname
	Kind     string // typtype: "b" a base type, "c" a composite, "d" a domain, "e" an enum, "r" a range, "m" a multirange
	Element  uint32 // of an array
	Base     uint32 // of a domain
	Modifier int32  // of a domain
	NotNull  bool   // a domain without NULL
	Subtype  uint32 // of a range
	Range    string // the range of a multirange, in SQL syntax
	Labels   []string
	Checks   []string // of a domain

	attributes []attribute // of a composite
}

type attribute struct {
	Owner    uint32
	Name     string
	Type     uint32
	Modifier int32
}

const usedTypes = `
	WITH RECURSIVE used AS (
		SELECT a.atttypid AS oid
		FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE a.attnum > 0 AND NOT a.attisdropped AND ` + ordinary + `
		UNION
		SELECT below.oid
		FROM used AS u JOIN pg_type AS t ON t.oid = u.oid
		LEFT JOIN pg_range AS r ON t.oid IN (r.rngtypid, r.rngmultitypid)
		CROSS JOIN LATERAL (
			SELECT t.typelem WHERE t.typcategory = 'A'
			UNION ALL SELECT t.typbasetype
			UNION ALL SELECT r.rngsubtype
			UNION ALL SELECT a.atttypid FROM pg_attribute AS a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
		) AS below (oid)
		WHERE below.oid <> 0
	)`

// sorts reads the types of all columns, and their component types.
func sorts(ctx context.Context, tx pgx.Tx) (map[uint32]*sort, error) {
	found, err := rowsOf[sort](ctx, tx, usedTypes+`
		SELECT t.oid, format_type(t.oid, -1) AS name, t.typname::text AS plain, t.typtype::text AS kind,
			CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END AS element, t.typbasetype AS base, t.typtypmod AS modifier,
			t.typnotnull AS not_null, coalesce(r.rngsubtype, 0) AS subtype, coalesce(format_type(r.rngtypid, -1), '') AS range,
			ARRAY(SELECT e.enumlabel::text FROM pg_enum AS e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) AS labels,
			ARRAY(SELECT pg_get_expr(k.conbin, 0) FROM pg_constraint AS k
				WHERE k.contypid = t.oid AND k.contype = 'c' ORDER BY k.conname) AS checks
		FROM used AS u JOIN pg_type AS t ON t.oid = u.oid LEFT JOIN pg_range AS r ON t.oid IN (r.rngtypid, r.rngmultitypid)`)
	if err != nil {
		return nil, fmt.Errorf("list types: %w", err)
	}
	byOID := make(map[uint32]*sort)
	for _, s := range found {
		byOID[s.OID] = s
	}
	attributes, err := rowsOf[attribute](ctx, tx, usedTypes+`
		SELECT t.oid AS owner, a.attname::text AS name, a.atttypid AS type, a.atttypmod AS modifier
		FROM used AS u JOIN pg_type AS t ON t.oid = u.oid JOIN pg_attribute AS a ON a.attrelid = t.typrelid
		WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY t.oid, a.attnum`)
	if err != nil {
		return nil, fmt.Errorf("list the parts of types: %w", err)
	}
	for _, a := range attributes {
		byOID[a.Owner].attributes = append(byOID[a.Owner].attributes, *a)
	}
	return byOID, nil
}

// resolve sets the facts of the column's type, below its domains.
func (c *column) resolve(types map[uint32]*sort) {
	c.types = types
	s := types[c.TypeOID]
	modifier := c.Modifier
	c.Base = c.Type
	for s.Kind == "d" {
		c.NotNull = c.NotNull || s.NotNull
		c.DomainChecks = append(c.DomainChecks, s.Checks...)
		if modifier < 0 {
			modifier = s.Modifier
		}
		s = types[s.Base]
		c.Base = s.Name
	}
	c.Modifier, c.sort = modifier, s
	if modifier < 0 {
		return
	}
	switch s.Plain {
	case "varchar", "bpchar":
		c.MaxLength = int(modifier) - 4
	case "bit", "varbit":
		c.MaxLength = int(modifier)
	case "numeric":
		c.Precision = int(modifier-4) >> 16 & 65535
		c.Scale = (int(modifier-4)&2047 ^ 1024) - 1024
	}
}

// part returns a column of a component type of c's type, for an expression of the values.
func (c *column) part(name string, of uint32, modifier int32) *column {
	part := &column{Name: name, Type: c.types[of].Name, TypeOID: of, Modifier: modifier, depth: c.depth + 1}
	part.resolve(c.types)
	return part
}
