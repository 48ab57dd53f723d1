package engine

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"iter"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// MaxPage is the largest number of items in a page, and the default if the limit is 0.
const MaxPage = 1000

// Page is one page of a listing. Next is the cursor of the next page, or "" after the last one. A cursor is valid for
// the same listing and filter, as long as the database exists.
type Page[T any] struct {
	Items []T
	Next  string
}

// pageOf cuts a page from rows, which were read with one more than limit.
func pageOf[T any](rows []T, limit int, cursor func(*T) string) Page[T] {
	if len(rows) <= limit {
		return Page[T]{Items: rows}
	}
	return Page[T]{Items: rows[:limit], Next: cursor(&rows[limit-1])}
}

// pageSize returns the limit to apply for a caller's limit.
func pageSize(limit int) (int, error) {
	switch {
	case limit < 0:
		return 0, core.Invalid("limit", "is negative")
	case limit == 0:
		return MaxPage, nil
	}
	return min(limit, MaxPage), nil
}

// cursorOf encodes the key of a page's last item, with a checksum that differs for each list.
func cursorOf(list string, key []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(cursorSum(list, key), key...))
}

func cursorSum(list string, key []byte) []byte {
	sum := crc32.Update(crc32.ChecksumIEEE([]byte(list+"\x00")), crc32.IEEETable, key)
	return binary.BigEndian.AppendUint32(nil, sum)
}

// readCursor returns the key in a cursor, or nil for the start.
func readCursor(list, cursor string) ([]byte, error) {
	if cursor == "" {
		return nil, nil
	}
	document, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(document) <= crc32.Size {
		return nil, core.Invalid("after", "is not a cursor")
	}
	key := document[crc32.Size:]
	if cursorOf(list, key) != cursor {
		return nil, core.Invalid("after", "is not a cursor of this listing")
	}
	return key, nil
}

func executionCursor(list string, x id.ExecutionID) string {
	u := x.UUID()
	return cursorOf(list, append(binary.BigEndian.AppendUint16(nil, uint16(x.Partition())), u[:]...))
}

// readExecutionCursor returns the execution after which a page starts, or false for the start of the listing.
func readExecutionCursor(list, cursor string) (id.ExecutionID, bool, error) {
	key, err := readCursor(list, cursor)
	if err != nil || key == nil {
		return id.ExecutionID{}, false, err
	}
	var u id.ExecutionUUID
	if len(key) != 2+len(u) {
		return id.ExecutionID{}, false, core.Invalid("after", "is not a cursor of this listing")
	}
	copy(u[:], key[2:])
	return id.ExecutionIDFromRow(int16(binary.BigEndian.Uint16(key)), u), true, nil
}

// pages iterates over a listing, a page at a time. Nothing is held open while the loop's body runs.
func pages[T any](list func(after string) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for after := ""; ; {
			page, err := list(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}
