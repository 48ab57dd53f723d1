package operators

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func secretOf(b byte) wire.Secret { return bytes.Repeat([]byte{b}, wire.SecretBytes) }

// storedKeys renders the keystore: "id active|retired, since, until", with times relative to the fixture's start.
func storedKeys(t *testing.T, f *fixture.Fixture) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, `
		SELECT kid || CASE WHEN active THEN ' active' ELSE ' retired' END || ' ' || rotated_at_ms - $1
			|| coalesce(' ' || ffx_verify_until_ms - $1, '')
		FROM ff_waitpoint_hmac
		ORDER BY kid`, fixture.Start.UnixMilli())
}

func wantKeys(t *testing.T, f *fixture.Fixture, want ...string) {
	t.Helper()
	if got := storedKeys(t, f); !slices.Equal(got, want) {
		t.Errorf("stored %q, want %q", got, want)
	}
}

// The first key is seeded once, by whichever process comes first.
func TestSeedKey(t *testing.T) {
	f := fixture.NewCloned(t)
	seed := func(kid string, secret wire.Secret) operator.KeySeed {
		t.Helper()
		result, err := operator.SeedKey(t.Context(), f.Engine, kid, secret)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	if got := seed("k1", secretOf(1)); got != (operator.KeySeed{Seeded: true, SameSecret: true, Active: true}) {
		t.Errorf("the first: %+v", got)
	}
	if got := seed("k1", secretOf(1)); got != (operator.KeySeed{SameSecret: true, Active: true}) {
		t.Errorf("again: %+v", got)
	}
	if got := seed("k1", secretOf(2)); got != (operator.KeySeed{Active: true}) {
		t.Errorf("with another secret: %+v", got)
	}
	_, err := operator.SeedKey(t.Context(), f.Engine, "k2", secretOf(2))
	if fixture.WantInputError(t, err, "key id"); !strings.Contains(err.Error(), `"k1"`) {
		t.Errorf("a second key: %v", err)
	}
	wantKeys(t, f, "k1 active 0")

	// With retired keys alone there is none that signs.
	f.Exec(t, "UPDATE ff_waitpoint_hmac SET active = false, rotated_at_ms = rotated_at_ms + 5000")
	if got := seed("k1", secretOf(1)); got != (operator.KeySeed{SameSecret: true}) {
		t.Errorf("a retired one: %+v", got)
	}
	if got := seed("k2", secretOf(2)); !got.Seeded {
		t.Errorf("after a retired one: %+v", got)
	}
	wantKeys(t, f, "k1 retired 5000", "k2 active 5001")
}

// Two processes seed at once: the second waits, and finds the key of the first.
func TestSeedKeyAtOnce_S31(t *testing.T) {
	f := fixture.NewCloned(t)
	tx := f.BeginTx(t)
	first, err := operator.SeedKey(t.Context(), f.WithTx(tx), "k1", secretOf(1))
	if err != nil || !first.Seeded {
		t.Fatal(first, err)
	}
	rival := f.Rival(t)
	type answer struct {
		operator.KeySeed
		err error
	}
	second := fixture.Async(t, func(ctx context.Context) answer {
		seed, err := operator.SeedKey(ctx, rival.Engine, "k1", secretOf(1))
		return answer{seed, err}
	})
	rival.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if got := second(); got.err != nil || got.KeySeed != (operator.KeySeed{SameSecret: true, Active: true}) {
		t.Errorf("%+v", got)
	}
	wantKeys(t, f, "k1 active 0")
}

func TestRotateKey_S30_S31_S32(t *testing.T) {
	f := fixture.NewCloned(t)
	rotate := func(kid string, secret wire.Secret, grace time.Duration) (operator.KeyRotation, error) {
		return operator.RotateKey(t.Context(), f.Engine, kid, secret, grace)
	}
	want := func(got operator.KeyRotation, err error, want operator.KeyRotation) {
		t.Helper()
		if err != nil || got != want {
			t.Errorf("%+v, error %v; want %+v", got, err, want)
		}
	}
	got, err := rotate("k1", secretOf(1), time.Hour)
	want(got, err, operator.KeyRotation{Rotated: true})
	got, err = rotate("k1", secretOf(1), time.Hour)
	want(got, err, operator.KeyRotation{Previous: "k1"})
	f.Advance(time.Second)
	got, err = rotate("k2", secretOf(2), time.Hour)
	want(got, err, operator.KeyRotation{Rotated: true, Previous: "k1"})
	wantKeys(t, f, "k1 retired 0 3601000", "k2 active 1000")

	for name, refused := range map[string]func() (operator.KeyRotation, error){
		"a retired key":                  func() (operator.KeyRotation, error) { return rotate("k1", secretOf(1), 0) },
		"a retired id with a new secret": func() (operator.KeyRotation, error) { return rotate("k1", secretOf(3), 0) },
		"another secret":                 func() (operator.KeyRotation, error) { return rotate("k2", secretOf(3), 0) },
	} {
		if _, err := refused(); !errors.Is(err, fferr.ErrKeyIDTaken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantKeys(t, f, "k1 retired 0 3601000", "k2 active 1000")

	// A clock that was set back does not let the old key sign on.
	f.Advance(-time.Hour)
	got, err = rotate("k3", secretOf(3), 2*time.Hour)
	want(got, err, operator.KeyRotation{Rotated: true, Previous: "k2"})
	f.Advance(time.Hour)
	wantKeys(t, f, "k1 retired 0 3601000", "k2 retired 1000 3601000", "k3 active 1001")

	// No grace ends a key in the call, and keys whose grace is over go with it.
	f.Advance(time.Hour)
	got, err = rotate("k4", secretOf(4), 0)
	want(got, err, operator.KeyRotation{Rotated: true, Previous: "k3", Deleted: 3})
	wantKeys(t, f, "k4 active 3601000")
}

// A grant lives as long as the key that signed it.
func TestRotatedKeysVerifyForTheirGrace(t *testing.T) {
	f := fixture.NewCloned(t)
	rotate := func(kid string, grace time.Duration) {
		t.Helper()
		if _, err := operator.RotateKey(t.Context(), f.Engine, kid, wire.NewSecret(), grace); err != nil {
			t.Fatal(err)
		}
	}
	rotate("k1", 0)
	spec := f.GrantSpec(f.Create(t))
	spec.TTL = time.Hour
	grant, err := interop.IssueClaimGrant(t.Context(), f.Engine, spec)
	if err != nil {
		t.Fatal(err)
	}
	rotate("k2", time.Minute)
	f.Advance(time.Minute - time.Millisecond)
	if err := interop.VerifyGrant(t.Context(), f.Engine, grant); err != nil {
		t.Errorf("within the grace: %v", err)
	}
	f.Advance(time.Millisecond)
	if err := interop.VerifyGrant(t.Context(), f.Engine, grant); !errors.Is(err, fferr.ErrInvalidGrant) {
		t.Errorf("after the grace: %v", err)
	}
}

func TestKeys(t *testing.T) {
	f := fixture.NewCloned(t)
	list := func() string {
		t.Helper()
		keys, err := operator.Keys(t.Context(), f.Engine)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, k := range keys {
			line := fmt.Sprint(k.ID, " ", k.Signs, " ", k.Since.Sub(fixture.Start))
			if !k.VerifiesUntil.IsZero() {
				line += fmt.Sprint(" ", k.VerifiesUntil.Sub(fixture.Start))
			}
			lines = append(lines, line)
		}
		return strings.Join(lines, ", ")
	}
	if got := list(); got != "" {
		t.Error(got)
	}
	for n, kid := range []string{"k1", "k2"} {
		if _, err := operator.RotateKey(t.Context(), f.Engine, kid, secretOf(byte(n)), time.Minute); err != nil {
			t.Fatal(err)
		}
		f.Advance(time.Second)
	}
	f.SeedKey(t, "of:no use", fixture.Columns{"rotated_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
	f.SeedKey(t, "short", fixture.Columns{"secret": []byte{1}, "rotated_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
	if got := list(); got != "k2 true 1s, k1 false 0s 1m1s" {
		t.Error(got)
	}
}

func TestKeysAreChecked(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, kid := range []string{"", "a:b", "a b", "ä", strings.Repeat("k", 65)} {
		_, err := operator.SeedKey(t.Context(), f.Engine, kid, secretOf(1))
		fixture.WantInputError(t, err, "key id")
		_, err = operator.RotateKey(t.Context(), f.Engine, kid, secretOf(1), 0)
		fixture.WantInputError(t, err, "key id")
	}
	for _, secret := range []wire.Secret{nil, secretOf(1)[1:], append(secretOf(1), 1)} {
		_, err := operator.SeedKey(t.Context(), f.Engine, "k1", secret)
		fixture.WantInputError(t, err, "secret")
		_, err = operator.RotateKey(t.Context(), f.Engine, "k1", secret, 0)
		fixture.WantInputError(t, err, "secret")
	}
	_, err := operator.RotateKey(t.Context(), f.Engine, "k1", secretOf(1), -1)
	fixture.WantInputError(t, err, "grace")
	wantKeys(t, f)
}

// A caller's transaction takes a key with it, and outlives a refusal.
func TestKeysInTheCallersTransaction(t *testing.T) {
	f := fixture.NewCloned(t)
	tx := f.BeginTx(t)
	o := f.WithTx(tx)
	if _, err := operator.SeedKey(t.Context(), o, "k1", secretOf(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.RotateKey(t.Context(), o, "k1", secretOf(2), 0); !errors.Is(err, fferr.ErrKeyIDTaken) {
		t.Fatal(err)
	}
	if _, err := operator.RotateKey(t.Context(), o, "k2", secretOf(2), time.Hour); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, f)
	fixture.Commit(t, tx)
	wantKeys(t, f, "k1 retired 0 3600000", "k2 active 1")
}

// No secret gets into a log, whatever the mode of the statements: not into a traced argument, an error or JSON.
func TestKeysKeepTheirSecrets(t *testing.T) {
	for _, mode := range fixture.QueryModes {
		t.Run(mode.String(), func(t *testing.T) {
			f := fixture.NewCloned(t)
			logged := new(fixture.LockedBuffer)
			logger := slog.New(slog.NewJSONHandler(logged, nil))
			pool := fixture.OpenPool(t, f.Url, func(cfg *pgxpool.Config) {
				cfg.ConnConfig.DefaultQueryExecMode = mode
				cfg.ConnConfig.Tracer = &tracelog.TraceLog{LogLevel: tracelog.LogLevelTrace, Logger: tracelog.LoggerFunc(
					func(_ context.Context, _ tracelog.LogLevel, msg string, data map[string]any) {
						logger.Info(msg, "data", data)
						fmt.Fprintf(logged, "%v %+v %#v\n", data, data, data)
					})}
			})
			o := f.EngineOn(t, pool, engine.Config{})
			secret := secretOf(0xab)
			if _, err := operator.SeedKey(t.Context(), o, "k1", secret); err != nil {
				t.Fatal(err)
			}
			if got, err := operator.SeedKey(t.Context(), o, "k1", secret); err != nil || !got.SameSecret {
				t.Errorf("%+v, %v", got, err)
			}
			_, err := operator.RotateKey(t.Context(), o, "k1", secretOf(0xcd), 0)
			text, _ := json.Marshal(secret)
			fmt.Fprintf(logged, "%v %s %v %#v", err, text, secret, secret)
			if !strings.Contains(logged.String(), "InsertKey") {
				t.Fatal("nothing was traced")
			}
			for _, form := range []string{
				hex.EncodeToString(secret[:4]), "q6urq6", fmt.Sprint([]byte(secret[:4]))[1:15], "0xab, 0xab",
			} {
				if strings.Contains(strings.ToLower(logged.String()), strings.ToLower(form)) {
					t.Errorf("the log has %q", form)
				}
			}
		})
	}
}
