package core

import (
	"bytes"
	"context"
	"crypto/sha256"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// SequenceID identifies a sequence in the database.
type SequenceID [16]byte

// Partition returns the partition of the sequence's rows, which is its first byte.
func (s SequenceID) Partition() int16 { return int16(s[0]) }

func (s SequenceID) PG() pgtype.UUID { return pgtype.UUID{Bytes: s, Valid: true} }

func (s SequenceID) Compare(other SequenceID) int { return bytes.Compare(s[:], other[:]) }

// MaxSequenceKey is the largest size of the key of a sequence, in bytes.
const MaxSequenceKey = 512

// SequenceOf returns the id of a sequence: the first bytes of SHA-256 over the namespace, a zero byte and the key.
func SequenceOf(namespace, key string) SequenceID {
	digest := sha256.Sum256([]byte(namespace + "\x00" + key))
	return SequenceID(digest[:16])
}

// CheckSequence checks the name of a sequence, and returns its id. The default of the namespace is the engine's.
func (c *Core) CheckSequence(namespace id.Namespace, key string) (SequenceID, error) {
	namespace, err := c.NamespaceOr(namespace)
	switch {
	case err != nil:
		return SequenceID{}, err
	case key == "":
		return SequenceID{}, Invalid("sequence key", "is empty")
	}
	return SequenceOf(string(namespace), key), CheckText("sequence key", key, MaxSequenceKey)
}

// AdvanceSequences gives the first members of sequences their turn, and returns the busy sequences.
func (c *Core) AdvanceSequences(ctx context.Context, tx *Txn, sequences []SequenceID, nowMs int64) (map[SequenceID]bool, error) {
	params := db.AdvanceSequencesParams{NowMs: nowMs}
	for _, s := range sequences {
		params.PartitionKeys = append(params.PartitionKeys, s.Partition())
		params.SequenceIDs = append(params.SequenceIDs, s.PG())
	}
	var rows []db.AdvanceSequencesRow
	var turns []db.ListTurnsRow
	err := pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) (err error) {
			rows, err = c.Q.AdvanceSequences(ctx, conn, params)
			return err
		},
		func(conn db.DBTX) (err error) {
			turns, err = c.Q.ListTurns(ctx, conn, db.ListTurnsParams{PartitionKeys: params.PartitionKeys, SequenceIDs: params.SequenceIDs})
			return err
		},
	)
	for _, next := range turns {
		switch {
		case next.Gated:
			tx.Due.Gated()
		case next.Claimable:
			tx.Due.Resumed(next.LaneID)
		}
	}
	busy := make(map[SequenceID]bool)
	for _, row := range rows {
		if row.Busy {
			busy[sequences[row.Ord]] = true
		}
	}
	return busy, err
}
