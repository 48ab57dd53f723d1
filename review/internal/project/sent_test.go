package project

import "testing"

// Named parameters take the numbers that the statement leaves free.
func TestReadNumbersNamedParametersBesideNumberedOnes(t *testing.T) {
	dir := t.TempDir()
	lay(t, dir, map[string]string{
		"sqlc.yaml":    "version: \"2\"\nsql:\n  - {engine: postgresql, schema: m, queries: q.sql, gen: {go: {package: shop, out: shop}}}\n",
		"m/1_item.sql": "-- migrate:up\nCREATE TABLE item (id bigint, name text, parts jsonb);\n-- migrate:down\nDROP TABLE item;\n",
		"q.sql": "-- name: Add :one\nINSERT INTO item VALUES ($1, sqlc.arg(name), $3, '$4', @again) RETURNING *;\n\n" +
			"-- name: Get :one\nSELECT * FROM item WHERE id = $1;\n",
		"shop/q.go": "package shop\n\nconst get = `-- name: Get :one\nSELECT id, name, parts FROM item WHERE id = $1\n`\n",
	})
	side, err := Read(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := side.Queries[0].SQL; got != "INSERT INTO item VALUES ($1, $2, $3, '$4', $4) RETURNING *" {
		t.Errorf("it becomes %q", got)
	}

	made := t.TempDir()
	lay(t, made, map[string]string{"shop/q.go": "package shop\n\nconst add = `-- name: Add :one\nINSERT … RETURNING id, name, parts\n`\n\nconst get = `-- name: Get :one\nSELECT 1\n`\n"})
	Qualify(side, &Side{Packages: []*SQLC{{}, {}}})
	if removed, err := side.TakeMade(side.Packages[0], made, func(string) bool { return true }); err != nil || len(removed) > 0 {
		t.Fatal(removed, err)
	}
	if got := side.Queries[0].SQL; got != "INSERT … RETURNING id, name, parts" {
		t.Errorf("a query that the committed package lacks is %q", got)
	}
	if got := side.Queries[1].SQL; got != "SELECT id, name, parts FROM item WHERE id = $1" {
		t.Errorf("a query that the committed package has is %q", got)
	}
}
