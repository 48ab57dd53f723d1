package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"

	"github.com/flowfabric/flowfabric-go/id"
)

// Secret is a key of the keystore, as raw bytes, and never printed.
type Secret []byte

// Format writes a placeholder for every verb.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "<REDACTED:len=%d>", len(s)) }

// LogValue returns the same placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(s)) }

// MarshalText makes JSON of the same placeholder.
func (s Secret) MarshalText() ([]byte, error) { return fmt.Append(nil, s), nil }

// SecretBytes is the length of a [Secret].
const SecretBytes = 32

const maxKid = 64

// CheckKid returns an error for a key id other than 1 to 64 bytes of visible ASCII without ":".
func CheckKid(kid string) error {
	const typ = "kid"
	switch {
	case kid == "":
		return &id.ParseError{Type: typ, Reason: id.ReasonEmpty}
	case len(kid) > maxKid:
		return refuse(typ, id.ReasonTooLong, kid)
	}
	for i := range len(kid) {
		if kid[i] < 0x21 || kid[i] > 0x7e || kid[i] == ':' {
			return refuse(typ, id.ReasonForbiddenCharacter, kid)
		}
	}
	return nil
}

// NewSecret returns a new random secret.
func NewSecret() Secret {
	secret := make(Secret, SecretBytes)
	rand.Read(secret) // never fails
	return secret
}

// ParseSecret parses a secret of exactly 64 hex digits, in either case.
func ParseSecret(text string) (Secret, error) {
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != SecretBytes {
		return nil, &id.ParseError{Type: "secret", Reason: id.ReasonMalformed}
	}
	return secret, nil
}

// Sign returns "<kid>:<64 hex digits>", the HMAC-SHA256 of kid ":" message under secret.
func Sign(secret Secret, kid, message string) string {
	return kid + ":" + hex.EncodeToString(mac(secret, kid, message))
}

// VerifySignature checks that signed equals the output of [Sign], with hex digits in either case. The comparison of the
// digest takes constant time.
//
// Errors: [*id.ParseError] with ReasonMalformed, ReasonWrongKid or ReasonSignatureMismatch.
func VerifySignature(secret Secret, kid, message, signed string) error {
	const typ = "signature"
	signedKid, digits, ok := strings.Cut(signed, ":")
	if !ok {
		return &id.ParseError{Type: typ, Reason: id.ReasonMalformed}
	}
	if signedKid != kid {
		return &id.ParseError{Type: typ, Reason: id.ReasonWrongKid}
	}
	digest, err := hex.DecodeString(digits)
	if err != nil {
		return &id.ParseError{Type: typ, Reason: id.ReasonMalformed}
	}
	if !hmac.Equal(digest, mac(secret, kid, message)) {
		return &id.ParseError{Type: typ, Reason: id.ReasonSignatureMismatch}
	}
	return nil
}

func mac(secret Secret, kid, message string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(kid))
	h.Write([]byte{':'})
	h.Write([]byte(message))
	return h.Sum(nil)
}

// WaitpointToken is the bearer secret with which its holder signals a waitpoint. [WaitpointToken.Reveal] returns it;
// all output, JSON included, is redacted.
type WaitpointToken string

// Reveal returns the token itself, for the link or message to its holder.
func (t WaitpointToken) Reveal() string { return string(t) }

// MarshalText returns the redacted form.
func (t WaitpointToken) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// SignWaitpoint returns the token of a waitpoint. Equal arguments return equal tokens.
func SignWaitpoint(secret Secret, kid string, e id.ExecutionID, w id.WaitpointID) WaitpointToken {
	return WaitpointToken(Sign(secret, kid, waitpointMessage(e, w)))
}

// Verify checks that t was made by [SignWaitpoint] with these arguments.
//
// Errors: as for [VerifySignature].
func (t WaitpointToken) Verify(secret Secret, kid string, e id.ExecutionID, w id.WaitpointID) error {
	return VerifySignature(secret, kid, waitpointMessage(e, w), string(t))
}

func waitpointMessage(e id.ExecutionID, w id.WaitpointID) string {
	return e.String() + ":" + w.String()
}

// Kid returns the id of the key that signed t, or "" if t is malformed.
func (t WaitpointToken) Kid() string {
	kid, _ := t.parts()
	return kid
}

// fingerprintLen is the length of a fingerprint in hex digits: 8 bytes of the digest.
const fingerprintLen = 16

// Fingerprint returns the start of t's digest, fit for listings, or "" if t is malformed.
func (t WaitpointToken) Fingerprint() string {
	_, digest := t.parts()
	return digest[:min(len(digest), fingerprintLen)]
}

func (t WaitpointToken) parts() (kid, digest string) {
	kid, digest, _ = strings.Cut(string(t), ":")
	if kid == "" || digest == "" {
		return "", ""
	}
	return kid, digest
}

// String returns "<kid>:<REDACTED:len=n>".
func (t WaitpointToken) String() string {
	kid, digest := t.parts()
	if kid == "" {
		return redactedMalformed
	}
	return kid + ":" + redacted(digest)
}

// Format writes the redacted form for every verb.
func (t WaitpointToken) Format(f fmt.State, _ rune) { fmt.Fprint(f, t.String()) }

// LogValue returns the redacted form.
func (t WaitpointToken) LogValue() slog.Value { return slog.StringValue(t.String()) }

const redactedMalformed = "<REDACTED:malformed>"

func redacted(s string) string { return fmt.Sprintf("<REDACTED:len=%d>", len(s)) }

// MintedWaitpointKey returns the key of a waitpoint created without one.
func MintedWaitpointKey(w id.WaitpointID) id.WaitpointKey {
	return id.WaitpointKey("wpk:" + w.String())
}
