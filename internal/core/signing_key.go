package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id/wire"
)

// SigningKey is a key for signing grants.
type SigningKey struct {
	Kid    string
	Secret wire.Secret
}

// SigningKeyOf returns the newest active key, read on conn.
//
// Errors: [fferr.ErrUnsupported] without one.
func (c *Core) SigningKeyOf(ctx context.Context, conn db.DBTX) (SigningKey, error) {
	rows, err := c.Q.ListSigningKeys(ctx, conn)
	if err != nil {
		return SigningKey{}, err
	}
	for _, row := range rows {
		if wire.CheckKid(row.Kid) == nil && len(row.Secret.Bytes) == wire.SecretBytes {
			return SigningKey{Kid: row.Kid, Secret: wire.Secret(row.Secret.Bytes)}, nil
		}
	}
	return SigningKey{}, ErrNoSigningKey()
}

// ErrNoSigningKey returns the error for a keystore without an active key.
func ErrNoSigningKey() error {
	return &fferr.UnsupportedError{Reason: "the keystore (ff_waitpoint_hmac) has no key to sign with: run `ff key seed`"}
}
