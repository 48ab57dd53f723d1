package operator

import (
	"context"
	"crypto/subtle"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/bytea"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// maxKeyGrace is the longest grace in milliseconds, the largest whole number every JSON reader can represent.
const maxKeyGrace = 1<<53 - 1

// SigningKey describes a key of the keystore, without its secret.
type SigningKey struct {
	ID            string
	Signs         bool      // the key signs new tokens and grants; true for one key at most
	Since         time.Time // when the key was seeded or rotated in
	VerifiesUntil time.Time // zero: until the next rotation, or a day longer for a key retired by FlowFabric
}

// KeySeed is the result of [SeedKey].
type KeySeed struct {
	Seeded     bool // false: the key existed, and nothing changed
	SameSecret bool // the existing key has the given secret; true if Seeded
	Active     bool // the key can sign; true if Seeded
}

// KeyRotation is the result of [RotateKey].
type KeyRotation struct {
	Rotated  bool   // false: the key was active already, and nothing changed
	Previous string // the key that signed before; "" if there was none
	Deleted  int    // retired keys after their grace

	// Waitpoints is how many of the first [MaxCountedWaitpoints] open waitpoints have a token of a key retired by this call.
	// Such tokens end with the grace, unless [ReissueToken] replaces them.
	Waitpoints int
}

// MaxCountedWaitpoints is the largest number of open waitpoints examined by [RotateKey].
const MaxCountedWaitpoints = 10_000

// Keys lists the keys that sign and verify claim grants, the newest first. Retired keys are listed until a rotation after
// their grace deletes them. Malformed keys of other programs are left out.
//
// Errors: those of every read. One statement.
func Keys(ctx context.Context, eng *engine.Engine) ([]SigningKey, error) {
	const op = "list keys"
	c := core.Of(eng)
	rows, err := c.Q.ListKeys(ctx, c.Reader(), c.NowMs())
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	var keys []SigningKey
	signs := signingKid(rows)
	for _, row := range rows {
		if usableKey(row) {
			keys = append(keys, SigningKey{
				ID: row.Kid, Signs: row.Kid == signs,
				Since: time.UnixMilli(row.RotatedAtMs), VerifiesUntil: core.OptionalTime(row.FfxVerifyUntilMs),
			})
		}
	}
	return keys, nil
}

// SeedKey puts the first key into the keystore. Without a key nothing can be signed. If a key with this id exists, nothing
// changes, and the result compares the secrets: all processes may call SeedKey when they start. [wire.NewSecret] makes a
// secret.
//
// Errors: [fferr.ErrInvalidInput] if the id is not 1 to 64 visible ASCII characters without ":", if the secret does not have
// 32 bytes, or if another key is active, which [RotateKey] replaces; [fferr.ErrContention]. Transaction: locks the keystore
// against other writers. Safe to repeat.
func SeedKey(ctx context.Context, eng *engine.Engine, kid string, secret wire.Secret) (KeySeed, error) {
	const op = "seed key"
	c := core.Of(eng)
	if err := checkKey(kid, secret); err != nil {
		return KeySeed{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, c, op, func(tx *core.Txn) (KeySeed, error) {
		rows, held, err := lockKeys(ctx, c, tx, kid)
		if err != nil {
			return KeySeed{}, err
		}
		if held != nil {
			return KeySeed{Active: held.active, SameSecret: held.is(secret)}, nil
		}
		if active := signingKid(rows); active != "" {
			return KeySeed{}, core.Invalid("key id", fmt.Sprintf("the keystore has the active key %q: rotate the new one in", active))
		}
		tx.Due.Keys = true
		err = c.Q.InsertKey(ctx, tx, db.InsertKeyParams{Kid: kid, Secret: bytea.Secret{Bytes: bytea.Bytes(secret)}, NowMs: c.NowMs()})
		return KeySeed{Seeded: true, SameSecret: true, Active: true}, err
	})
}

// RotateKey makes a new key sign. Earlier keys verify for the grace: a grace of 0 ends a compromised key in this call. All
// tokens and grants signed by a key end with the key, so choose a grace longer than any grant or wait, or replace the tokens
// of open waitpoints by [ReissueToken]. The log has their number.
//
// Other processes cache keys for up to 5 seconds, and may accept tokens of a compromised key for so long. So may this process
// after a transaction of the caller, whose commit it can't see, unless [engine.Engine.InTx] made the transaction.
//
// Errors: [fferr.ErrInvalidInput] for a malformed id or secret as with [SeedKey], or a grace that is negative or longer than
// 2⁵³ milliseconds; [fferr.ErrKeyIDTaken] if a retired key has the id, or an active one with another secret;
// [fferr.ErrContention]. Transaction: locks the keystore against other writers. Safe to repeat: an active key with this
// secret doesn't change.
func RotateKey(ctx context.Context, eng *engine.Engine, kid string, secret wire.Secret, grace time.Duration) (KeyRotation, error) {
	const op = "rotate key"
	c := core.Of(eng)
	if err := checkKey(kid, secret); err != nil {
		return KeyRotation{}, core.Wrap(op, err)
	}
	if grace < 0 || grace.Milliseconds() > maxKeyGrace {
		return KeyRotation{}, core.Wrap(op, core.Invalid("grace", fmt.Sprintf("%v, not between 0 and 2^53-1 ms", grace)))
	}
	rotation, err := core.InTx(ctx, c, op, func(tx *core.Txn) (KeyRotation, error) {
		return rotateKey(ctx, c, tx, kid, secret, grace)
	})
	if rotation.Waitpoints > 0 {
		c.Log.WarnContext(ctx, "open waitpoints have tokens of a key that was rotated away: they end with its grace unless they are reissued",
			"key", rotation.Previous, "waitpoints", rotation.Waitpoints, "grace", grace)
	}
	return rotation, err
}

func rotateKey(ctx context.Context, c *core.Core, tx *core.Txn, kid string, secret wire.Secret, grace time.Duration) (KeyRotation, error) {
	rows, held, err := lockKeys(ctx, c, tx, kid)
	switch {
	case err != nil:
		return KeyRotation{}, err
	case held != nil && held.active && held.is(secret):
		return KeyRotation{Previous: kid}, nil
	case held != nil:
		return KeyRotation{}, fmt.Errorf("key %q: %w", kid, fferr.ErrKeyIDTaken)
	}
	tx.Due.Keys = true
	if err := c.Q.RetireKeys(ctx, tx, db.RetireKeysParams{GraceMs: grace.Milliseconds(), NowMs: c.NowMs()}); err != nil {
		return KeyRotation{}, err
	}
	if err := c.Q.InsertKey(ctx, tx, db.InsertKeyParams{Kid: kid, Secret: bytea.Secret{Bytes: bytea.Bytes(secret)}, NowMs: c.NowMs()}); err != nil {
		return KeyRotation{}, err
	}
	var retired []string
	for _, row := range rows {
		if row.Active {
			retired = append(retired, row.Kid)
		}
	}
	signed, err := c.Q.CountSignedWaitpoints(ctx, tx, db.CountSignedWaitpointsParams{Kids: retired, MaxItems: MaxCountedWaitpoints})
	if err != nil {
		return KeyRotation{}, err
	}
	deleted, err := c.Q.DropExpiredKeys(ctx, tx, c.NowMs())
	return KeyRotation{Rotated: true, Previous: signingKid(rows), Deleted: int(deleted), Waitpoints: int(signed)}, err
}

// heldKey is a key of the locked keystore.
type heldKey struct {
	active bool
	secret wire.Secret
}

// is compares the key's secret with another, in the same time for all secrets of one length.
func (k *heldKey) is(secret wire.Secret) bool {
	return subtle.ConstantTimeCompare(k.secret, secret) == 1
}

// lockKeys locks the keystore, and returns all keys and the key with the given id, or nil.
func lockKeys(ctx context.Context, c *core.Core, tx *core.Txn, kid string) ([]db.ListKeysRow, *heldKey, error) {
	if err := c.Q.LockKeys(ctx, tx); err != nil {
		return nil, nil, err
	}
	rows, err := c.Q.ListKeys(ctx, tx, c.NowMs())
	if err != nil {
		return nil, nil, err
	}
	for _, row := range rows {
		if row.Kid == kid {
			secret, err := c.Q.GetKeySecret(ctx, tx, kid)
			return rows, &heldKey{active: row.Active, secret: wire.Secret(secret.Bytes)}, err
		}
	}
	return rows, nil, nil
}

// signingKid returns the signing key among keys in the order of ListKeys, or "".
func signingKid(rows []db.ListKeysRow) string {
	for _, row := range rows {
		if row.Active && usableKey(row) {
			return row.Kid
		}
	}
	return ""
}

// usableKey reports whether a stored key can sign and verify at all.
func usableKey(row db.ListKeysRow) bool { return row.Usable && wire.CheckKid(row.Kid) == nil }

func checkKey(kid string, secret wire.Secret) error {
	if err := wire.CheckKid(kid); err != nil {
		return core.InvalidBecause("key id", err)
	}
	if len(secret) != wire.SecretBytes {
		return core.Invalid("secret", fmt.Sprintf("%d bytes, not %d", len(secret), wire.SecretBytes))
	}
	return nil
}
