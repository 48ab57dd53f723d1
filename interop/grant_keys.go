package interop

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// presented is a grant's key presented by a worker, with its kind and execution.
type presented struct {
	kind      wire.GrantKind
	key       wire.GrantKey
	execution id.ExecutionID
}

// verify returns the worker and the instance of the grant.
//
// Errors: [fferr.ErrInvalidGrant], [fferr.ErrGrantExpired].
func (p presented) verify(ctx context.Context, c *core.Core, conn db.DBTX, nowMs int64) (id.WorkerID, id.WorkerInstanceID, error) {
	refused := func(reason id.Reason) error {
		return &fferr.GrantError{Execution: p.execution, Reason: reason, Err: fferr.ErrInvalidGrant}
	}
	fields, err := p.key.Parse(p.kind)
	switch {
	case err != nil, fields.Execution != p.execution:
		return "", "", refused(id.ReasonMalformed)
	case fields.ExpiresAtMs <= nowMs:
		return "", "", &fferr.GrantError{Execution: p.execution, Err: fferr.ErrGrantExpired}
	}
	secret, err := c.Q.GetVerifyingKey(ctx, conn, db.GetVerifyingKeyParams{
		Kid: fields.Kid, NowMs: nowMs, GraceMs: core.KeyGrace.Milliseconds(),
	})
	switch {
	case core.IsNoRow(err), err == nil && len(secret.Bytes) != wire.SecretBytes:
		return "", "", refused(id.ReasonUnknownKid)
	case err != nil:
		return "", "", err
	}
	grantID := p.key.ID()
	row, err := c.Q.GetGrant(ctx, conn, db.GetGrantParams{
		PartitionKey: p.execution.Partition(), ExecutionID: p.execution.UUID(), GrantID: grantID[:], Kind: string(p.kind),
	})
	switch {
	case core.IsNoRow(err):
		return "", "", refused(id.ReasonUnknownGrant)
	case err != nil:
		return "", "", err
	}
	signed := wire.Grant{
		Kind: p.kind, Execution: p.execution, ExpiresAtMs: fields.ExpiresAtMs,
		Worker: id.WorkerID(row.WorkerID), WorkerInstance: id.WorkerInstanceID(row.WorkerInstanceID),
	}
	if signed.Verify(wire.Secret(secret.Bytes), fields.Kid, p.key) != nil {
		return "", "", refused(id.ReasonSignatureMismatch)
	}
	return signed.Worker, signed.WorkerInstance, nil
}

// verifyFor is verify for a worker that presents its own grant.
func (p presented) verifyFor(
	ctx context.Context, c *core.Core, conn db.DBTX, nowMs int64, worker id.WorkerID, instance id.WorkerInstanceID,
) error {
	w, i, err := p.verify(ctx, c, conn, nowMs)
	if err == nil && (w != worker || i != instance) {
		err = &fferr.GrantError{Execution: p.execution, Reason: id.ReasonUnknownGrant, Err: fferr.ErrInvalidGrant}
	}
	return err
}

// VerifyGrant checks whether a claim grant is valid now: issued for this execution, to any worker, and neither used nor
// withdrawn. It does not check whether the execution can be leased. The grant's Key determines the expiry; Lane and ExpiresAt
// are ignored.
//
// Errors: [fferr.ErrInvalidInput] for an execution that can't exist in this database; [fferr.ErrGrantExpired];
// [fferr.ErrInvalidGrant] with the reason in its [fferr.GrantError]. Only reads.
func VerifyGrant(ctx context.Context, eng *engine.Engine, grant ClaimGrant) error {
	c := core.Of(eng)
	const op = "verify grant"
	if err := c.CheckExecution(grant.Execution); err != nil {
		return core.Wrap(op, err)
	}
	conn := c.Reader()
	nowMs, err := c.Q.GetNow(ctx, conn, c.NowMs())
	if err == nil {
		_, _, err = presented{wire.ClaimGrant, grant.Key, grant.Execution}.verify(ctx, c, conn, nowMs)
	}
	return core.Wrap(op, err)
}
