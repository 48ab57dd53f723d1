package migrations

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

func init() {
	goose.AddMigrationNoTxContext(up20250417193714, down20250417193714)
}

func up20250417193714(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `ANALYZE v1_queue_item`)
	return err
}

func down20250417193714(ctx context.Context, db *sql.DB) error { return nil }
