package transactions

import (
	"context"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// settingsSeen are all settings of transactions, as a statement sees them.
func settingsSeen(t *testing.T, conn db.DBTX) map[string]string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT name, coalesce(current_setting(name, true), '') FROM unnest(ARRAY[
		'transaction_isolation', 'ffx.defer_notify', 'plan_cache_mode', 'jit', 'enable_hashjoin', 'enable_mergejoin',
		'enable_seqscan', 'enable_bitmapscan', 'synchronous_commit', 'lock_timeout', 'transaction_timeout',
		'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_user_timeout']) AS name`)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	var name, setting string
	if _, err := pgx.ForEachRow(rows, []any{&name, &setting}, func() error { seen[name] = setting; return nil }); err != nil {
		t.Fatal(err)
	}
	return seen
}

// Transactions have the same settings whether each sets them or the session has them, also after a failure.
func TestSessionHasTheSettingsOfTransactions(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	open := func(connected func(context.Context, *pgx.Conn) error) pgtx.Runner {
		return pgtx.NewRunner(fixture.OpenPool(t, url, func(cfg *pgxpool.Config) {
			cfg.MaxConns, cfg.AfterConnect = 1, connected
			cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
			cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
		}))
	}
	each, session := open(nil), open(pgtx.SetForSession)
	if want, got := settingsSeen(t, each.AtOnce()), settingsSeen(t, session.Plain()); !maps.Equal(want, got) {
		t.Errorf("a session has %v, want %v", got, want)
	}
	for name, of := range map[string]func(pgtx.Runner) pgtx.Runner{
		"normal": func(r pgtx.Runner) pgtx.Runner { return r }, "short wait": pgtx.Runner.ShortWait,
	} {
		each, session := of(each), of(session)
		for range 2 {
			if want, got := settingsSeen(t, each.AtOnce()), settingsSeen(t, session.AtOnce()); !maps.Equal(want, got) {
				t.Errorf("%s: a transaction sent at once has %v, want %v", name, got, want)
			}
			in := func(r *pgtx.Runner) (seen map[string]string) {
				_, err := pgtx.InTx(t.Context(), r, func(tx pgx.Tx) (struct{}, error) {
					seen = settingsSeen(t, tx)
					return struct{}{}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return seen
			}
			if want, got := in(&each), in(&session); !maps.Equal(want, got) {
				t.Errorf("%s: a transaction of several statements has %v, want %v", name, got, want)
			}
			if _, err := session.AtOnce().Exec(t.Context(), "SELECT 1 / 0"); err == nil {
				t.Fatal("a division by zero succeeded")
			}
		}
	}
}

// Behind a transaction pooler no session gets settings, which its other clients would have too.
func TestPgBouncerSessionsStayAsTheyAre(t *testing.T) {
	fixture.EachMode(t, func(t *testing.T, open func(*testing.T, string) *pgxpool.Pool) {
		url := pgtest.CloneURL(t)
		cfg := open(t, url).Config()
		cfg.AfterConnect = pgtx.SetForSession
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		r := pgtx.NewRunner(pool)
		if got := settingsSeen(t, r.Plain()); got["ffx.defer_notify"] != "" || got["enable_seqscan"] != "on" || got["lock_timeout"] != "0" {
			t.Errorf("a session of the pooler has %v", got)
		}
		if got := settingsSeen(t, r.AtOnce()); got["ffx.defer_notify"] != "on" || got["enable_seqscan"] != "off" || got["lock_timeout"] != "2s" {
			t.Errorf("a transaction has %v", got)
		}
	})
}
