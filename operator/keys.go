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

// maxKeyGrace is the longest grace, the largest whole number that every JSON reader can represent, in milliseconds.
const maxKeyGrace = 1<<53 - 1

// SigningKey describes a key of the keystore. Its secret is never listed.
type SigningKey struct {
	ID            string
	Signs         bool      // new tokens and grants are signed with it; true for one key at most
	Since         time.Time // when it was seeded or rotated in
	VerifiesUntil time.Time // zero: until the next rotation, or for a key that FlowFabric retired until a day after that
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
	Previous string // the key that signed before; "" if none did
	Deleted  int    // retired keys whose grace is over

	// Waitpoints is how many of the first [MaxCountedWaitpoints] open waitpoints have a token of a key that this call
	// retired. Those tokens end with the grace, unless [ReissueToken] replaces them.
	Waitpoints int
}

// MaxCountedWaitpoints is the largest number of open waitpoints that [RotateKey] looks at.
const MaxCountedWaitpoints = 10_000

// Keys lists the keys that sign and verify claim grants, the newest first. Retired keys are listed until a rotation
// deletes them after their grace. Keys that can't be used, because another program stored a malformed one, are left out.
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

// SeedKey puts the first key into the keystore. Without a key nothing can be signed. If the keystore has the key, with
// this secret or another one, nothing changes and the result says so, so all processes may call it when they start.
// [wire.NewSecret] makes a secret.
//
// Errors: [fferr.ErrInvalidInput] if the id is not 1 to 64 visible ASCII characters without ":", if the secret does not have
// 32 bytes, or if another key is active, which [RotateKey] replaces; [fferr.ErrContention].
// Transaction: locks the keystore against other writers. Safe to repeat.
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

// RotateKey lets a new key sign. The keys that signed before verify for the grace, and no longer: a grace of 0 ends a
// compromised key in this call. Everything that a key signed ends with it, so the grace should be longer than any grant
// or wait lasts, or [ReissueToken] has to replace the tokens of open waitpoints. The log has their number.
//
// Other processes remember keys for up to 5 seconds, so they may still accept the tokens of a compromised key for so long.
// So may this one after a transaction of your own: it can't know of the commit. [engine.Engine.InTx] does.
//
// Errors: [fferr.ErrInvalidInput] for a malformed id or secret as with [SeedKey], or a grace that is negative or
// longer than 2⁵³ milliseconds; [fferr.ErrKeyIDTaken] if a retired key has the id, or an active one with another secret;
// [fferr.ErrContention]. Transaction: locks the keystore against other writers. Safe to repeat: an active key with this secret
// is left alone.
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

// is reports whether the key has a secret. It takes the same time for all secrets of one length.
func (k *heldKey) is(secret wire.Secret) bool {
	return subtle.ConstantTimeCompare(k.secret, secret) == 1
}

// lockKeys locks the keystore, and returns its keys and the one with the given id, or nil.
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

// signingKid returns the key that signs, of keys in the order of ListKeys, or "".
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
