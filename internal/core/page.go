package core

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
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
