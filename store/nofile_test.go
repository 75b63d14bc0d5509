package store

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/test/testlog"
)

// TestNotAFile: what is no regular file is not touched.
func TestNotAFile(t *testing.T) {
	tests := []struct {
		name string
		put  func(path string) error
		want string
	}{
		{"directory", func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file (d"},
		{"FIFO", func(p string) error { return unix.Mkfifo(p, 0o600) }, "not a regular file (p"},
		{"socket", func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) }, "not a regular file (S"},
		{"link to a file", func(p string) error {
			return os.Symlink(filepath.Join(filepath.Dir(p), "victim"), p)
		}, "not a regular file (L"},
		{"dangling link", func(p string) error { return os.Symlink(filepath.Join(filepath.Dir(p), "none"), p) }, "not a regular file (L"},
		{"directory is a file", func(p string) error {
			return os.WriteFile(filepath.Dir(p)+"/d", nil, 0o600)
		}, "not a directory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := cacheFile(t)
			victim := filepath.Join(filepath.Dir(path), "victim")
			if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := test.put(path); err != nil {
				t.Fatal(err)
			}
			log := &testlog.Records{}
			o := opts(path)
			if test.name == "directory is a file" {
				o.Path = filepath.Dir(path) + "/d/cache.db"
			}
			o.Log = slog.New(log)
			before, _ := os.Lstat(path)
			s, cached := Open(o)
			apply(s, service("web", 80))
			if view(t, s, "web") != "80" || cached.Complete || cached.Why == "" {
				t.Errorf("the store does not work in memory: %+v", cached)
			}
			logged := log.Take()
			if len(logged) != 1 || !strings.Contains(logged[0], test.want) || !strings.Contains(logged[0], "remedy=") {
				t.Errorf("logged %q", logged)
			}
			if err := s.Close(); err == nil {
				t.Error("Close does not tell that nothing was written")
			}
			after, _ := os.Lstat(path)
			if before != nil && !os.SameFile(before, after) {
				t.Error("what was there was replaced")
			}
			if b, _ := os.ReadFile(victim); string(b) != "precious" {
				t.Errorf("the file behind the link is %q", b)
			}
		})
	}
}
