package core

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"github.com/flowfabric/flowfabric-go/id"
)

// CursorOf encodes the key of a page's last item, with a checksum specific to the list.
func CursorOf(list string, key []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(cursorSum(list, key), key...))
}

func cursorSum(list string, key []byte) []byte {
	sum := crc32.Update(crc32.ChecksumIEEE([]byte(list+"\x00")), crc32.IEEETable, key)
	return binary.BigEndian.AppendUint32(nil, sum)
}

// ReadCursor returns the key in a cursor, or nil for the start.
func ReadCursor(list, cursor string) ([]byte, error) {
	if cursor == "" {
		return nil, nil
	}
	document, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(document) <= crc32.Size {
		return nil, Invalid("after", "is not a cursor")
	}
	key := document[crc32.Size:]
	if CursorOf(list, key) != cursor {
		return nil, Invalid("after", "is not a cursor of this listing")
	}
	return key, nil
}

func ExecutionCursor(list string, x id.ExecutionID) string {
	u := x.UUID()
	return CursorOf(list, append(binary.BigEndian.AppendUint16(nil, uint16(x.Partition())), u[:]...))
}

// ReadExecutionCursor returns the execution after which a page starts, or false for the start of the listing.
func ReadExecutionCursor(list, cursor string) (id.ExecutionID, bool, error) {
	key, err := ReadCursor(list, cursor)
	if err != nil || key == nil {
		return id.ExecutionID{}, false, err
	}
	var u id.ExecutionUUID
	if len(key) != 2+len(u) {
		return id.ExecutionID{}, false, Invalid("after", "is not a cursor of this listing")
	}
	copy(u[:], key[2:])
	return id.ExecutionIDFromRow(int16(binary.BigEndian.Uint16(key)), u), true, nil
}
