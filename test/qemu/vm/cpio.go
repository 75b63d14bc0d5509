package vm

import (
	"fmt"
	"io"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
)

// cpio writes an archive as the kernel takes it for an initramfs: the format "newc" of
// Documentation/driver-api/early-userspace/buffer-format.rst.
type cpio struct {
	w    io.Writer
	err  error // the first
	seen map[string]bool
}

// cpioTrailer is the name of the last entry.
const cpioTrailer = "TRAILER!!!"

// entry writes an entry, and before it the folders that it is in. A name that is there already is left as it is.
func (c *cpio) entry(name string, mode uint32, device uint64, content []byte) {
	if c.seen[name] {
		return
	}
	c.seen[name] = true
	if dir := path.Dir(name); dir != "." {
		c.entry(dir, unix.S_IFDIR|0o755, 0, nil)
	}
	c.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		len(c.seen), mode, 0, 0, 1, 0, len(content), 0, 0, unix.Major(device), unix.Minor(device), len(name)+1, 0, name))
	c.write(content)
}

// write writes bytes, and zeros up to a multiple of four.
func (c *cpio) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(append(b[:len(b):len(b)], make([]byte, -len(b)&3)...))
	}
}

func (c *cpio) file(name string, perm fs.FileMode, content []byte) {
	c.entry(name, unix.S_IFREG|uint32(perm.Perm()), 0, content)
}

func (c *cpio) link(name, target string) { c.entry(name, unix.S_IFLNK|0o777, 0, []byte(target)) }
