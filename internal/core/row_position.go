package core

import (
	"github.com/jackc/pgx/v5/pgtype"
)

// RowPosition is the key of a row; the zero value is before the first row.
type RowPosition struct {
	Partition int16
	Key       pgtype.UUID
}

// After returns the parameters for the rows after the position.
func (p RowPosition) After() (int16, pgtype.UUID) {
	if !p.Key.Valid {
		return -1, pgtype.UUID{Valid: true}
	}
	return p.Partition, p.Key
}
