package engine

import (
	"context"
	"crypto/subtle"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// verifyToken checks that a token is that of the waitpoint it is presented for, without a look at the waitpoint.
//
// A key may be rotated away between this check and the delivery. The signal then counts as one that came before the
// rotation: its sender presented the token while the key was good, and a cached key would allow the same. What must not
// happen is that an older token of a reissued waitpoint is accepted, and ffx_deliver compares the stored token under the
// execution's lock.
func (e *Engine) verifyToken(ctx context.Context, x id.ExecutionID, waitpoint id.WaitpointID, token wire.WaitpointToken) error {
	kid := token.Kid()
	if wire.CheckKid(kid) != nil {
		return fferr.ErrInvalidToken
	}
	key, err := e.verifyingKey(ctx, kid)
	switch {
	case err != nil:
		return err
	case key == nil:
		return fferr.ErrInvalidToken
	}
	// The whole text is compared, so that each token has one spelling.
	signed := wire.SignWaitpoint(key.Secret, kid, x, waitpoint)
	if subtle.ConstantTimeCompare([]byte(signed.Reveal()), []byte(token.Reveal())) != 1 {
		return fferr.ErrInvalidToken
	}
	return nil
}

// core.VerifyingKey returns the key with an id if it verifies now, or nil. In a caller's transaction, which may have changed
// the keys itself, it reads them; otherwise it looks into the cache first.
func (e *Engine) verifyingKey(ctx context.Context, kid string) (*core.VerifyingKey, error) {
	now := e.c.ProcessTime()
	if e.c.Tx == nil {
		if key, read := e.c.Keys.Get(kid, now); !read {
			return key, nil
		}
	}
	mark := e.c.Keys.Began()
	rows, err := e.c.Q.ListVerifyingKeys(ctx, e.c.Reader(), db.ListVerifyingKeysParams{NowMs: e.c.NowMs(), GraceMs: core.KeyGrace.Milliseconds()})
	if err != nil {
		return nil, err
	}
	keys := make(map[string]core.VerifyingKey, len(rows))
	for _, row := range rows {
		if len(row.Secret.Bytes) != wire.SecretBytes {
			continue
		}
		// From the beginning of the statement on, so rather too early than too late.
		left := time.Duration(min(row.LeftMs, 2*core.KeyCacheTTL.Milliseconds())) * time.Millisecond
		keys[row.Kid] = core.VerifyingKey{Secret: wire.Secret(row.Secret.Bytes), Until: now.Add(left)}
	}
	if e.c.Tx == nil {
		e.c.Keys.Keep(keys, now, mark)
	}
	if key, ok := keys[kid]; ok {
		return &key, nil
	}
	return nil, nil
}
