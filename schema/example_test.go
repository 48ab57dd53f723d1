package schema_test

import (
	"context"
	"log"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/schema"
)

// A program that migrates when it starts. Any number of processes may do so at the same time.
func ExampleMigrate() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	result, err := schema.Migrate(ctx, pool, schema.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("applied %q, now at %s", result.Applied, result.To)
}

// The migrations that a database at a given version lacks, as one file for goose.
func ExampleSQL() {
	steps, err := schema.SQL(schema.SQLOptions{From: "20261125000015"})
	if err != nil || len(steps) == 0 {
		log.Fatal("nothing to write: ", err)
	}
	files, err := schema.Join(steps).Files(schema.Goose)
	if err != nil {
		log.Fatal(err)
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join("migrations", "00042_flowfabric.sql"), []byte(file.Text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
}
