package arguments

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

func TestFor(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `CREATE TYPE mood AS ENUM ('calm', 'busy');
		CREATE TABLE a (id int PRIMARY KEY, name text, mood mood, b uuid, n bigint);
		INSERT INTO a SELECT i, 'it''s "' || i, 'busy', md5(i::text)::uuid, NULL FROM generate_series(1, 8) AS i; ANALYZE a`); err != nil {
		t.Fatal(err)
	}
	v, err := New(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, sql string
		want      []string
	}{
		{"compared", `SELECT id FROM a WHERE a.id = $1::int AND $2 = name AND mood IN ($3, $4) LIMIT $5`, []string{`'4'`, `'it''s "4'`, `'busy'`, `'busy'`, `'100'`}},
		{"assigned", `UPDATE a SET name = coalesce($2, name), n = $3 WHERE id = $1`, []string{`'4'`, `'it''s "4'`, `'100'`}},
		{"inserted", `INSERT INTO a (id, mood) VALUES ($1, $2)`, []string{`'4'`, `'busy'`}},
		{"unnested", `SELECT FROM a JOIN unnest($1::int[], $2::text[]) AS x (id, name) ON x.id = a.id`, []string{`'{"4"}'`, `'{"it''s \"4"}'`}},
		{"in a list", `WITH x AS (SELECT unnest($1::int[]) AS id) DELETE FROM a USING x WHERE x.id = a.id AND a.id = ANY ($2::int[])`, []string{`'{"4"}'`, `'{"4"}'`}},
		{"unknown", `SELECT $1::mood, $2::timestamptz, $3::uuid[], $4::jsonb`, []string{`'calm'`, `'today'`, `'{"00000000-0000-0000-0000-000000000001"}'`, `'{}'`}},
		{"none", `SELECT 1`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			prepared, err := conn.Prepare(t.Context(), "", test.sql)
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.For(t.Context(), test.sql, prepared.ParamOIDs)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%q, error %v, instead of %q", got, err, test.want)
			}
		})
	}
}
