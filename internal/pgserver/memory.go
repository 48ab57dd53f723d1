//go:build linux || darwin

package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// sharedMemory is where Linux has a file system in RAM for everyone.
const sharedMemory = "/dev/shm"

// room is how much space must be free there: several times the size of a server of the tests.
const room = 2 << 30

// memoryFolder makes and returns the user's folder in RAM, or returns "" if impossible.
//
// The tests create and drop hundreds of databases of hundreds of files. On a disk this is most of the server's work,
// although the server never waits for the disk: ext4 without a journal looks at every inode freed in the last half
// minute before taking another one.
func (a account) memoryFolder() string {
	folder := filepath.Join(sharedMemory, fmt.Sprintf("flowfabric-go-%d", os.Geteuid()))
	mode := os.FileMode(0o700)
	if a.instead != "" {
		mode = 0o755 // the account passes through
	}
	if err := os.Mkdir(folder, mode); err != nil && !os.IsExist(err) {
		return ""
	}
	// Any user could have made a folder of this name, or a link.
	info, err := os.Lstat(folder)
	if err != nil || !info.IsDir() {
		return ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return ""
	}
	if err := os.Chmod(folder, mode); err != nil { // past the umask
		return ""
	}
	return folder
}

// roomy reports whether there is enough space in a folder in RAM.
func roomy(folder string) bool {
	var stat syscall.Statfs_t
	if folder == "" || syscall.Statfs(folder, &stat) != nil {
		return false
	}
	return stat.Bavail*uint64(stat.Bsize) >= room
}
