package pgtest

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
)

// migrationsKey hashes the names and texts of the migrations.
func migrationsKey() (int32, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "schema/migrations")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "schema/migrations/*.sql"))
	if err != nil {
		return 0, err
	}
	h := sha256.New()
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return 0, err
		}
		h.Write([]byte(f))
		h.Write(b)
	}
	return int32(binary.BigEndian.Uint32(h.Sum(nil))), nil
}
