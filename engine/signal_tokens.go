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

// verifyToken checks that a token belongs to a waitpoint, without reading the waitpoint.
//
// A key may be retired between this check and the delivery. The signal then counts as earlier than the rotation: the
// sender presented the token while the key was valid, and a cached key would allow the same. An older token of a
// reissued waitpoint must never be accepted: ffx_deliver compares the stored token under the execution's lock.
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
	// The whole text is compared, so each token has one spelling.
	signed := wire.SignWaitpoint(key.Secret, kid, x, waitpoint)
	if subtle.ConstantTimeCompare([]byte(signed.Reveal()), []byte(token.Reveal())) != 1 {
		return fferr.ErrInvalidToken
	}
	return nil
}

// verifyingKey returns the key with an id if the key verifies now, or nil. A caller's transaction may have changed the
// keys, so it reads them; otherwise the cache comes first.
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
		// Counted from the start of the statement: the key expires too early rather than too late.
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
