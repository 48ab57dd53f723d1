package claims

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The key that signs is the newest active one that is a key at all.
func TestNewestActiveKeySigns_I24_I26(t *testing.T) {
	secret := func(b byte) []byte { return bytes.Repeat([]byte{b}, wire.SecretBytes) }
	for _, c := range []struct {
		name string
		keys map[string]fixture.Columns
		want string // "": none
	}{
		{"none", nil, ""},
		{"none that is active", map[string]fixture.Columns{"old": {"active": false}}, ""},
		{"the newest", map[string]fixture.Columns{"a": {"rotated_at_ms": 1}, "b": {"rotated_at_ms": 3}, "c": {"rotated_at_ms": 2}}, "b"},
		{"not a newer one that is retired", map[string]fixture.Columns{"a": {"rotated_at_ms": 1}, "b": {"rotated_at_ms": 3, "active": false}}, "a"},
		{"the first of two", map[string]fixture.Columns{"b": {}, "a": {}}, "a"},
		{"not one without a secret", map[string]fixture.Columns{"a": {"secret": []byte{}, "rotated_at_ms": 9}, "b": {}}, "b"},
		{"not one of another length", map[string]fixture.Columns{"a": {"secret": append(secret(1), 1), "rotated_at_ms": 9}, "b": {}}, "b"},
		{"not one whose name has a colon", map[string]fixture.Columns{"a:b": {"rotated_at_ms": 9}, "b": {}}, "b"},
		{"none that can be used", map[string]fixture.Columns{"a b": {}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			for kid, changed := range c.keys {
				f.SeedKey(t, kid, changed)
			}
			x := f.Create(t)
			before := f.Dump(t, x)
			grant, err := interop.IssueClaimGrant(t.Context(), f.Engine, f.GrantSpec(x))
			if c.want != "" {
				fields, parseErr := grant.Key.Parse(wire.ClaimGrant)
				if err != nil || parseErr != nil || fields.Kid != c.want {
					t.Errorf("signed by %q, %v, %v; want %q", fields.Kid, err, parseErr, c.want)
				}
				return
			}
			_, errReclaim := interop.IssueReclaimGrant(t.Context(), f.Engine, f.GrantSpec(x))
			_, _, errWorker := interop.ClaimForWorker(t.Context(), f.Engine, f.WorkerSpec())
			for n, err := range []error{err, errReclaim, errWorker} {
				if !errors.Is(err, fferr.ErrUnsupported) || !strings.Contains(err.Error(), "ff_waitpoint_hmac") {
					t.Errorf("operation %d: %v", n, err)
				}
			}
			f.WantUnchanged(t, x, before)
			// An operator needs no key.
			if _, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, "", fixture.LeaseTTL); err != nil {
				t.Error(err)
			}
		})
	}
}

// A key that was retired verifies for as long as its rotation said; one that the reference retired, which lets it verify
// for ever, a day from the next one on.
func TestRetiredKeysVerifyDuringTheirGrace_I25(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name    string
		retired string // assignments
		next    time.Duration
		last    time.Duration // how long after the start it still verifies; below 0: not at all
	}{
		{"active beside a newer one", "active = true", time.Second, 10 * day},
		{"until it was to", "active = false, ffx_verify_until_ms = 1800000005000", time.Second, 5*time.Second - time.Millisecond},
		{"with no grace", "active = false, ffx_verify_until_ms = 1800000000000", 0, -1},
		{"by the reference", "active = false", time.Second, day + time.Second - time.Millisecond},
		{"by the reference, without a newer one", "active = false, rotated_at_ms = 1800000002000", -time.Hour, day + 2*time.Second - time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			spec := f.GrantSpec(f.Create(t))
			spec.TTL = 20 * day
			grant, err := interop.IssueClaimGrant(t.Context(), f.Engine, spec)
			if err != nil {
				t.Fatal(err)
			}
			f.SeedKey(t, "k2", fixture.Columns{"secret": bytes.Repeat([]byte{7}, 32), "rotated_at_ms": fixture.Start.Add(c.next).UnixMilli()})
			f.Exec(t, "UPDATE ff_waitpoint_hmac SET "+c.retired+" WHERE kid = 'k1'")
			if c.last >= 0 {
				f.Advance(c.last)
				if err := interop.VerifyGrant(t.Context(), f.Engine, grant); err != nil {
					t.Error(err)
				}
				f.Advance(time.Millisecond)
			}
			if c.last < 10*day {
				wantGrantError(t, interop.VerifyGrant(t.Context(), f.Engine, grant), fferr.ErrInvalidGrant, id.ReasonUnknownKid)
			}
		})
	}
}
