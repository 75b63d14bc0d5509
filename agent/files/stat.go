package files

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fileID tells one version of a file from another, as far as its inode does.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // in nanoseconds since 1970
}

func idOf(st *unix.Stat_t) fileID {
	return fileID{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

// settleTime is how old a version must be before its fileID is trusted to change
// with the next one. Timestamps are as coarse as 2 s (FAT): a file written twice
// within that time may look the same.
const settleTime = 3 * time.Second

// settled tells whether a version that was read at a time can be known by its fileID.
func (id fileID) settled(read time.Time) bool {
	return read.Sub(time.Unix(0, max(id.mtime, id.ctime))) > settleTime
}

// isManifest tells by its name whether a file is read. Hidden files and those
// beginning with '#' are what editors, package managers and kubelet's volumes
// (..data) put there for a while.
func isManifest(name string) bool {
	if name[0] == '.' || name[0] == '#' {
		return false
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// isJSON tells whether a file is JSON by its name; the others are YAML.
func isJSON(name string) bool { return strings.EqualFold(filepath.Ext(name), ".json") }

// fileType says in words what a file is that is no regular file.
func fileType(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return fmt.Sprintf("a file of type %#o", mode&unix.S_IFMT)
}

// isRegular tells whether a file can be read like a text: opening and reading
// anything else could block, or do something.
func isRegular(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFREG }

// notRegular is the error for what is no regular file.
func notRegular(st *unix.Stat_t) error {
	return fmt.Errorf("this is %s: only regular files are read; give it another name, or move it away", fileType(uint32(st.Mode)))
}
