package migrations

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3"
)

func init() {
	goose.AddMigrationNoTxContext(up20251103120000, down20251103120000)
}

func up20251103120000(ctx context.Context, db *sql.DB) error { return nil }

func down20251103120000(ctx context.Context, db *sql.DB) error { return nil }
