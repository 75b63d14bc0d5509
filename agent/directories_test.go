package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChangeable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to others")
	}
	const other = 4711
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Skip("this user namespace has one user:", err)
		}
	}
	for _, tt := range []struct {
		name string
		make func(dir string) string // returns the path
		want string
	}{
		{"for root alone", func(dir string) string { return dir }, ""},
		{"not there yet", func(dir string) string { return filepath.Join(dir, "a/b") }, ""},
		{"writable", func(dir string) string { must(os.Chmod(dir, 0o777)); return dir }, "everybody"},
		{"writable above", func(dir string) string {
			must(os.Mkdir(dir+"/a", 0o700))
			must(os.Chmod(dir, 0o777))
			return dir + "/a"
		}, "everybody"},
		{"sticky", func(dir string) string { must(os.Chmod(dir, 0o777|os.ModeSticky)); return dir }, "everybody"},
		{"sticky above", func(dir string) string {
			must(os.Mkdir(dir+"/a", 0o700))
			must(os.Chmod(dir, 0o777|os.ModeSticky))
			return dir + "/a"
		}, ""},
		{"of another group", func(dir string) string {
			must(os.Chown(dir, 0, other))
			must(os.Chmod(dir, 0o770))
			return dir
		}, "group 4711"},
		{"of root's group", func(dir string) string { must(os.Chmod(dir, 0o770)); return dir }, ""},
		{"of another user", func(dir string) string { must(os.Chown(dir, other, 0)); return dir }, "belongs to user 4711"},
		{"a link of another user", func(dir string) string {
			must(os.Mkdir(dir+"/a", 0o700))
			must(os.Symlink("a", dir+"/link"))
			must(os.Lchown(dir+"/link", other, 0))
			return dir + "/link"
		}, "link belongs to user 4711"},
		{"a link to what another user has", func(dir string) string {
			must(os.MkdirAll(dir+"/a/b", 0o700))
			must(os.Chown(dir+"/a", other, 0))
			must(os.Symlink("a/b", dir+"/link"))
			return dir + "/link"
		}, "/a belongs to user 4711"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := tt.make(t.TempDir())
			if got := changeable(path, 0); got == "" != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
