package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/id"
)

// GrantKind is the kind of claim a grant permits.
type GrantKind string

// The kinds of grants.
const (
	ClaimGrant   GrantKind = "claim"
	ReclaimGrant GrantKind = "reclaim"
)

// GrantKey is the bearer secret that lets one worker claim one execution. JSON and string conversion return the raw value;
// all other output is redacted.
type GrantKey string

// Grant has the fields a grant key signs.
type Grant struct {
	Kind           GrantKind
	Execution      id.ExecutionID
	Worker         id.WorkerID
	WorkerInstance id.WorkerInstanceID
	ExpiresAtMs    int64
}

// GrantFields has the fields of a grant key that are readable without the keystore.
type GrantFields struct {
	Execution   id.ExecutionID
	ExpiresAtMs int64
	Kid         string
}

const (
	claimGrantPrefix   = "pg:"
	reclaimGrantPrefix = "pg:reclaim:"
)

func (k GrantKind) prefix() string {
	if k == ReclaimGrant {
		return reclaimGrantPrefix
	}
	return claimGrantPrefix
}

// Message returns the text a grant's signature covers. Its fields are separated by "|", which no worker id may contain.
func (g Grant) Message() string {
	tag, uuid, _ := strings.Cut(g.Execution.String(), "}:")
	fields := []string{
		tag + "}", uuid, string(g.Worker), string(g.WorkerInstance), strconv.FormatInt(g.ExpiresAtMs, 10),
	}
	if g.Kind == ReclaimGrant {
		fields = append(fields, string(ReclaimGrant))
	}
	return strings.Join(fields, "|")
}

// Sign returns the grant's key.
func (g Grant) Sign(secret Secret, kid string) GrantKey {
	return GrantKey(g.Kind.prefix() + g.Execution.String() + ":" + strconv.FormatInt(g.ExpiresAtMs, 10) +
		":" + Sign(secret, kid, g.Message()))
}

// Verify checks that key, already parsed, is the key of g signed under kid. g comes from the grant's stored row, so
// Verify refuses a key for another execution or worker. The comparison takes constant time.
//
// Errors: [*id.ParseError] with ReasonSignatureMismatch.
func (g Grant) Verify(secret Secret, kid string, key GrantKey) error {
	if !hmac.Equal([]byte(g.Sign(secret, kid)), []byte(key)) {
		return &id.ParseError{Type: grantKeyType, Reason: id.ReasonSignatureMismatch}
	}
	return nil
}

const grantKeyType = "grant key"

// ID returns the key of the grant's row: the SHA-256 of k.
func (k GrantKey) ID() [sha256.Size]byte { return sha256.Sum256([]byte(k)) }

// Parse parses a key of the given kind. Parse checks the form, not the signature; see [Grant.Verify].
//
// Errors: [*id.ParseError] with ReasonMalformed.
func (k GrantKey) Parse(kind GrantKind) (GrantFields, error) {
	malformed := &id.ParseError{Type: grantKeyType, Reason: id.ReasonMalformed}
	body, prefixed := strings.CutPrefix(string(k), kind.prefix())
	tag, rest, tagged := strings.Cut(body, "}:")
	parts := strings.Split(rest, ":")
	if !prefixed || !tagged || len(parts) != 4 {
		return GrantFields{}, malformed
	}
	text, expires, kid, digest := parts[0], parts[1], parts[2], parts[3]
	execution, err := id.ParseExecutionID(tag + "}:" + text)
	expiresAtMs, ok := parsePlain(expires, 64)
	if err != nil || execution.UUID().String() != text || !ok || kid == "" || !isDigest(digest) {
		return GrantFields{}, malformed
	}
	return GrantFields{Execution: execution, ExpiresAtMs: expiresAtMs, Kid: kid}, nil
}

// IsSigned reports whether k begins like the keys from [Grant.Sign]. IsSigned checks neither the form nor the
// signature.
func (k GrantKey) IsSigned() bool { return strings.HasPrefix(string(k), claimGrantPrefix) }

// isDigest reports whether s is 64 lower-case hex digits.
func isDigest(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 2*sha256.Size && strings.ToLower(s) == s
}

// String returns the key with its digest redacted.
func (k GrantKey) String() string {
	for _, kind := range []GrantKind{ClaimGrant, ReclaimGrant} {
		if _, err := k.Parse(kind); err == nil {
			digest := strings.LastIndexByte(string(k), ':') + 1
			return string(k[:digest]) + redacted(string(k[digest:]))
		}
	}
	return redactedMalformed
}

// Format writes the redacted form for every verb.
func (k GrantKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.String()) }

// LogValue returns the redacted form.
func (k GrantKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
