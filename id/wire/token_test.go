package wire

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/quick"

	"github.com/flowfabric/flowfabric-go/id"
)

var testSecret = Secret(bytes.Repeat([]byte{0x11}, SecretBytes))

// TestKidAndSecretAreChecked_I24: an empty secret forges, a colon makes keys ambiguous.
func TestKidAndSecretAreChecked_I24(t *testing.T) {
	for _, kid := range []string{"", "a:b", "a b", "k\n", "ké", strings.Repeat("k", 65)} {
		if CheckKid(kid) == nil {
			t.Errorf("kid %q accepted", kid)
		}
	}
	for _, text := range []string{"", "11", strings.Repeat("1", 63), strings.Repeat("1", 66), strings.Repeat("g", 64)} {
		secret, err := ParseSecret(text)
		if reasonOf(t, err) != id.ReasonMalformed || secret != nil {
			t.Errorf("secret %q: got %v, %v", text, secret, err)
		}
		if err != nil && len(text) > 2 && strings.Contains(err.Error(), text) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

func TestSecretsNeverRender(t *testing.T) {
	grant := Grant{Kind: ClaimGrant, Worker: "w", WorkerInstance: "w-1", ExpiresAtMs: 1}
	token := SignWaitpoint(testSecret, "kid-1", id.ExecutionID{}, id.WaitpointID{})
	key := grant.Sign(testSecret, "kid-1")
	_, digest, _ := strings.Cut(string(token), ":")
	holder := struct {
		Secret Secret
		Token  WaitpointToken
		Key    GrantKey
	}{testSecret, token, key}
	hidden := []string{digest, string(key[len(key)-64:]), strings.Repeat("11", 8), strings.Repeat("17 ", 8), strings.Repeat("17, ", 8)}

	var rendered []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		rendered = append(rendered, fmt.Sprintf(verb, holder), fmt.Sprintf(verb, &holder),
			fmt.Sprintf(verb, token), fmt.Sprintf(verb, key), fmt.Sprintf(verb, testSecret))
	}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("m", "token", token, "key", key, "secret", testSecret)
	}
	errs := errors.Join(
		VerifySignature(testSecret, "kid-2", "m", string(token)), VerifySignature(testSecret, "kid-1", "m", string(token)),
		VerifySignature(testSecret, "kid-1", "m", digest), grant.Verify(testSecret, "kid-2", key),
		token.Verify(testSecret, "kid-1", id.ExecutionID{}, id.WaitpointID{1}))
	_, parseErr := key.Parse(ReclaimGrant)
	for _, text := range append(rendered, log.String(), errs.Error(), parseErr.Error()) {
		for _, secret := range hidden {
			if strings.Contains(strings.ToLower(text), secret) {
				t.Errorf("%q tells %q", text, secret)
			}
		}
	}
}

func TestSignatureIsBoundToEveryPart(t *testing.T) {
	err := quick.Check(func(partition uint8, uuid id.ExecutionUUID, waitpoint id.WaitpointID) bool {
		execution := id.ExecutionIDFromRow(int16(partition), uuid)
		token := SignWaitpoint(testSecret, "k", execution, waitpoint)
		if err := token.Verify(testSecret, "k", execution, waitpoint); err != nil {
			t.Log(err)
			return false
		}
		for i := range waitpoint {
			other := waitpoint
			other[i] ^= 1
			if token.Verify(testSecret, "k", execution, other) == nil {
				t.Logf("verifies for %v", other)
				return false
			}
		}
		flipped := append(Secret{testSecret[0] ^ 1}, testSecret[1:]...)
		if token.Verify(flipped, "k", execution, waitpoint) == nil {
			t.Log("verifies under another secret")
			return false
		}
		return true
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

// TestGrantKeyIsBoundToItsRow_I30: presented for another execution, worker, time or kind,
// it fails.
func TestGrantKeyIsBoundToItsRow_I30(t *testing.T) {
	row := Grant{Kind: ClaimGrant, Execution: id.ExecutionIDFromRow(7, id.ExecutionUUID{1}), Worker: "w", WorkerInstance: "w-1", ExpiresAtMs: 1000}
	key := row.Sign(testSecret, "k")
	if err := row.Verify(testSecret, "k", key); err != nil {
		t.Fatal(err)
	}
	changes := map[string]func(*Grant){
		"kind":      func(g *Grant) { g.Kind = ReclaimGrant },
		"partition": func(g *Grant) { g.Execution = id.ExecutionIDFromRow(8, id.ExecutionUUID{1}) },
		"execution": func(g *Grant) { g.Execution = id.ExecutionIDFromRow(7, id.ExecutionUUID{2}) },
		"worker":    func(g *Grant) { g.Worker = "v" },
		"instance":  func(g *Grant) { g.WorkerInstance = "w-2" },
		"time":      func(g *Grant) { g.ExpiresAtMs++ },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			other := row
			change(&other)
			if err := other.Verify(testSecret, "k", key); reasonOf(t, err) != id.ReasonSignatureMismatch {
				t.Errorf("got %v", err)
			}
		})
	}
	for kind, other := range map[GrantKind]GrantKind{ClaimGrant: ReclaimGrant, ReclaimGrant: ClaimGrant} {
		row.Kind = kind
		key := row.Sign(testSecret, "k")
		if fields, err := key.Parse(kind); err != nil || fields.Execution != row.Execution {
			t.Errorf("%s key: got %+v, %v", kind, fields, err)
		}
		if _, err := key.Parse(other); reasonOf(t, err) != id.ReasonMalformed {
			t.Errorf("%s key taken for %s: %v", kind, other, err)
		}
	}
}

func TestGrantKeyHasOneSpelling(t *testing.T) {
	row := Grant{Kind: ClaimGrant, Execution: id.ExecutionIDFromRow(7, id.ExecutionUUID{0: 0xab}), Worker: "w", WorkerInstance: "w-1", ExpiresAtMs: 1000}
	key := string(row.Sign(testSecret, "k"))
	for _, text := range []string{
		strings.Replace(key, "ab00", "AB00", 1), strings.Replace(key, "{fp:7}", "{fp:07}", 1), strings.Replace(key, ":1000:", ":01000:", 1),
		key[:len(key)-64] + strings.ToUpper(key[len(key)-64:]), strings.Replace(key, ":k:", "::", 1), key + ":", " " + key,
	} {
		if _, err := GrantKey(text).Parse(ClaimGrant); text == key || reasonOf(t, err) != id.ReasonMalformed {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func FuzzVerifySignature(f *testing.F) {
	f.Add(Sign(testSecret, "k", "m"), "k", "m")
	f.Add("k:abc", "k", "m")
	f.Fuzz(func(t *testing.T, signed, kid, message string) {
		err := VerifySignature(testSecret, kid, message, signed)
		if verified := strings.EqualFold(signed, Sign(testSecret, kid, message)); err == nil && !verified {
			t.Fatalf("%q verifies for %q, %q", signed, kid, message)
		}
	})
}

func FuzzWaitpointToken(f *testing.F) {
	f.Add("kid-1:2208771e75821be5b6f5b70892eae01e")
	f.Add("a:b:c")
	f.Fuzz(func(t *testing.T, s string) {
		token := WaitpointToken(s)
		kid, print := token.Kid(), token.Fingerprint()
		if !strings.HasPrefix(s, kid) || !strings.Contains(s, print) || len(print) > fingerprintLen {
			t.Fatalf("%q: kid %q, fingerprint %q", s, kid, print)
		}
		if kid == "" && token.String() != redactedMalformed {
			t.Fatalf("%q renders as %q", s, token)
		}
	})
}

func FuzzParseGrantKey(f *testing.F) {
	for _, kind := range []GrantKind{ClaimGrant, ReclaimGrant} {
		f.Add(string(Grant{Kind: kind, Worker: "w", WorkerInstance: "w-1", ExpiresAtMs: 1}.Sign(testSecret, "k")))
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, kind := range []GrantKind{ClaimGrant, ReclaimGrant} {
			fields, err := GrantKey(s).Parse(kind)
			if err != nil {
				continue
			}
			rest, found := strings.CutPrefix(s, fmt.Sprintf("%s%v:%d:%s:", kind.prefix(), fields.Execution, fields.ExpiresAtMs, fields.Kid))
			if !found || len(rest) != 64 {
				t.Fatalf("%q parses as %+v", s, fields)
			}
		}
	})
}
