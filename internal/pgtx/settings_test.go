package pgtx

import (
	"slices"
	"strings"
	"testing"
)

// Every transaction begins with every setting; without one of them something is slower, or waits for ever.
func TestSettingsAreComplete(t *testing.T) {
	common := []string{
		"'transaction_isolation', 'read committed'", "'ffx.defer_notify', 'on'", "'plan_cache_mode', 'force_generic_plan'",
		"'jit', 'off'", "'enable_hashjoin', 'off'", "'enable_mergejoin', 'off'", "'enable_seqscan', 'off'",
		"'enable_bitmapscan', 'off'", "'synchronous_commit', 'on'",
	}
	network := []string{"'tcp_keepalives_idle', '10'", "'tcp_keepalives_interval', '5'", "'tcp_user_timeout', '20000'"}
	between := []string{"'statement_timeout', '30s'", "'idle_in_transaction_session_timeout', '30s'"}
	for lock, of := range map[string]settingsOf{"2s": normalSettings, "50ms": shortWaitSettings} {
		locks := append(slices.Clone(common), "'lock_timeout', '"+lock+"'")
		for _, c := range []struct {
			name, text string
			want       []string
		}{
			{"recent", of.recent, append(slices.Clone(locks), "'transaction_timeout', '30s'")},
			{"older", of.older, slices.Concat(locks, network, between)},
			{"older, at once", of.atOnce, slices.Concat(locks, network)},
		} {
			for _, want := range c.want {
				if !strings.Contains(c.text, "set_config("+want+", true)") {
					t.Errorf("%s, locks %s: does not set %s", c.name, lock, want)
				}
			}
			if got := strings.Count(c.text, "set_config("); got != len(c.want) {
				t.Errorf("%s, locks %s: %d settings, want %d", c.name, lock, got, len(c.want))
			}
		}
	}
}
