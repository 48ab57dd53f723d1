package schema

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// referenceVersion is the schema version of FlowFabric 0.15. referenceLedgerTable is the ledger.
const (
	referenceVersion     = 22
	referenceLedgerTable = "_sqlx_migrations"
)

// referenceChecksums has the SHA-384 sums of the migrations of FlowFabric 0.15. Number 15 does not exist.
var referenceChecksums = map[int64]string{
	1:  "9ff7e96a98ffd0cfa2f3eb32e0f9482ad1905dc78cdc52bdb87e3d68794771a7f2e06a8294449ddd1b7f516beddf1b40",
	2:  "a81355439c91e16dd62e6f29169507b76db85605f688b815e3134d1956171b97b9581794f8af0f0fdb6780d3b2eb3ebd",
	3:  "9efca66d6be816411a9413c3aae787c5a154059c63866c1c03d6ceb2389b85b34328314258eb8c715c6ed9c91b5e4fa7",
	4:  "53be2f02f84d9de6969732cfe8fa3c50dc3d828ef50d0165bf88327594f27ec652f2c60cc97bd81212f93484751d03f9",
	5:  "964a72a0747971ebd580dd4b6bcf1999a972f59a14cc78d0ef47f7e4782829c0b3db5da94e803f086ccefab6b550c040",
	6:  "cc165744de11e412fe744823c98a9d18b5f697d6f64a95abc5971f060fa1a99bfdac126ddd9aff64534b04c3c9974490",
	7:  "c2f317da61d8b95b32f77857dc9524e8512bf8ed6051a03102dffc72b264a85b2df162d2e0235b34e0413f758f47a920",
	8:  "7238cd72a0fb711dc1ed014988955bcc5e87ca79979c42cfc33dac989eefcbc65d2f49099f942f4b67e02a870004cc19",
	9:  "011f4e616d5d1b52cfe78bfca35efc1464ca385d41443dc8195138aaadb751eb261aff29886fa1c370967164d2a34dcc",
	10: "4f13556be64c5b25ab533738226309624da50d06f877af407b111b6d7021405abd340c8f54d5e34af33a0b54fdc5e82e",
	11: "dcc06ee568795ad9d3f359457f9f0c4da9f4930f011a8e28285b4f20b70b927dd46b3eb798869d7ede96ff6a8809ab7c",
	12: "bc113a49b73b0bb5b1bfc64078fe8542058e73b8ad76e45f16936354f3d12460d83aca4518511354e6e0829dcd14ce56",
	13: "7c843e7d483dccecdcf783272e426bd3a0b8225d38d9a2384cd60e8f7e4ffb1fe36ceff0eb4a7dc1744bf89c1050df36",
	14: "d6c600cb1d2faf649bc2caa564169ebe73156797ab139a80ef2b9d3d720f21b929aef7832ad490d0dd979881eec3605b",
	16: "2a69a24097418ea8e0d8296bb2a0e4f37c95bbd7df6f41d1eb3c61afcd0a0078e56af5bd1a6f9e4647c1831a9a9c15ab",
	17: "b6d267f539120b8d454d528c4dbb8e54c44ffafadf25342dec3f176d30c8fa22a28c61b8c13fbabbabd56fde44f3f2fd",
	18: "8e46ca6420854d0381583e026e3824711efc4d09ddb7a6eb79120346a84aaf9ea7d695c3989d02a37a47d496a007156a",
	19: "c7558a668b756efec6453e66f1f9e28be58d01928a58963841a8d9773c3b65ccafc820402bdf4dc9628f0891c6a301f6",
	20: "818839cadb8c9fee615964951b6a788dbd8cfb44d4e6a6f6cb11ddcb471612e5dc45f7403f8d9146a8e3d067df316b7e",
	21: "8ef0d6feb183a6bd15ebc6f1dfa3d9a47004a84544daf56f675e28ef9ee365025d8e24333a77c82eb80255805a91b825",
	22: "fe57077fab6ff1cc0a114b47b57383b021273829376947e2028c20f29a10343d47340a809d042ef044e711d241b59005",
}

// referenceRow is a row of FlowFabric's ledger, _sqlx_migrations.
type referenceRow struct {
	version  int64
	success  bool
	checksum string // hexadecimal
}

// referenceLedger is ordered by version. An empty ledger means the same as none: a server that starts on a database with
// other tables leaves an empty one behind.
type referenceLedger []referenceRow

func readReferenceLedger(ctx context.Context, db Querier, schema string) (referenceLedger, error) {
	rows, err := db.Query(ctx, "SELECT version, success, encode(checksum, 'hex') FROM "+pgx.Identifier{schema, "_sqlx_migrations"}.Sanitize()+" ORDER BY version")
	if err != nil {
		return nil, classify("read the ledger of FlowFabric", err)
	}
	ledger, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (referenceRow, error) {
		var r referenceRow
		err := row.Scan(&r.version, &r.success, &r.checksum)
		return r, err
	})
	if err != nil {
		return nil, classify("read the ledger of FlowFabric", err)
	}
	return ledger, nil
}

// refusal returns the sentinel and detail for a ledger not from FlowFabric 0.15 or, if allowed, a newer version.
func (l referenceLedger) refusal(allowNewer bool) (detail string, sentinel error) {
	applied := map[int64]bool{}
	for _, row := range l {
		if !row.success {
			return fmt.Sprintf("migration %d of FlowFabric is recorded as failed", row.version), ErrDirty
		}
		applied[row.version] = true
	}
	for _, version := range slices.Sorted(maps.Keys(referenceChecksums)) {
		if !applied[version] {
			return fmt.Sprintf("migration %d of FlowFabric is missing", version), ErrTooOld
		}
	}
	if newest := l[len(l)-1].version; newest > referenceVersion && !allowNewer {
		return fmt.Sprintf("FlowFabric migrated it to version %d, this build knows %d", newest, referenceVersion), fferr.ErrTooNew
	}
	return "", nil
}

func (l referenceLedger) warnings() []string {
	var warnings []string
	for _, row := range l {
		known, ok := referenceChecksums[row.version]
		switch {
		case !ok && row.version > referenceVersion:
			warnings = append(warnings, fmt.Sprintf("a newer FlowFabric applied its migration %d", row.version))
		case !ok:
			warnings = append(warnings, fmt.Sprintf("FlowFabric 0.15 has no migration %d and will not start on this database", row.version))
		case row.checksum != known:
			warnings = append(warnings, fmt.Sprintf("migration %d has another checksum than in FlowFabric 0.15, which will not start on this database", row.version))
		}
	}
	return warnings
}

// missingStructure checks tables without a ledger, created by hand or by a migrator that died. The result is the first
// thing missing in comparison with version 22 of FlowFabric, or "".
func missingStructure(ctx context.Context, db Querier, schema string) (string, error) {
	var missing string
	err := db.QueryRow(ctx, `
		WITH class AS (
			SELECT
				oid,
				relname
			FROM pg_class
			WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
		),
		probe (version, what, present) AS (
			VALUES
			(1, 'table ff_exec_core', EXISTS (SELECT FROM class WHERE relname = 'ff_exec_core')),
			(16, 'column ff_exec_core.started_at_ms', EXISTS (
				SELECT FROM pg_attribute JOIN class ON attrelid = class.oid
				WHERE relname = 'ff_exec_core' AND attname = 'started_at_ms'
			)),
			(17, 'table ff_claim_grant', EXISTS (SELECT FROM class WHERE relname = 'ff_claim_grant')),
			(17, 'column ff_exec_core.lease_reclaim_count', EXISTS (
				SELECT FROM pg_attribute JOIN class ON attrelid = class.oid
				WHERE relname = 'ff_exec_core' AND attname = 'lease_reclaim_count'
			)),
			(18, 'index ff_completion_event_lookup_idx', EXISTS (
				SELECT FROM class WHERE relname = 'ff_completion_event_lookup_idx'
			)),
			(19, 'table ff_flow_summary', EXISTS (SELECT FROM class WHERE relname = 'ff_flow_summary')),
			(20, 'table ff_budget_usage_by_exec', EXISTS (
				SELECT FROM class WHERE relname = 'ff_budget_usage_by_exec'
			)),
			(21, 'table ff_worker_registry', EXISTS (SELECT FROM class WHERE relname = 'ff_worker_registry')),
			(22, 'five-column primary key of ff_worker_registry_event', EXISTS (
				SELECT FROM pg_index JOIN class ON indrelid = class.oid
				WHERE relname = 'ff_worker_registry_event' AND indisprimary AND indnkeyatts = 5
			))
		)
		SELECT format('%s of its migration %s is missing', what, version)
		FROM probe
		WHERE NOT present
		ORDER BY version
		LIMIT 1`,
		schema,
	).Scan(&missing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", classify("inspect the tables", err)
	}
	return missing, nil
}
