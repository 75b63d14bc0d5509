package store

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice/agent/source"
	"sluice/test/testlog"
)

const mountEnv = "SLUICE_STORE_TEST_MOUNTS"

// withMounts runs a test in a process of its own that may mount file systems, which no other process sees. It
// returns false in the outer process, where the test is over.
func withMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(mountEnv) == t.Name() {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mountEnv+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("in the process with mounts: %v", err)
	}
	return false
}

// tmpfs mounts a small file system.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskFull: changes wait in memory while there is no space, once each, and are written later.
func TestDiskFull(t *testing.T) {
	if !withMounts(t) {
		return
	}
	dir := tmpfs(t, "size=256k")
	log := &testlog.Records{}
	o := opts(filepath.Join(dir, "cache.db"))
	o.CommitInterval = 20 * time.Millisecond
	o.Log = slog.New(log)
	s, _ := open(t, o)
	apply(s, service("first", 1))
	settle(t, s)
	for round := range 3 {
		for i := range 300 {
			apply(s, service(fmt.Sprintf("s%03d", i), int32(round+1)), endpointSlice(fmt.Sprintf("e%03d", i), fmt.Sprintf("s%03d", i), 10))
			// Objects that come and go leave nothing to be written.
			apply(s, service(fmt.Sprintf("gone%03d-%d", i, round), 1))
			remove(s, service(fmt.Sprintf("gone%03d-%d", i, round), 1))
		}
	}
	failed := s.Stats().FailedCommits
	wait(t, "attempts fail", func() bool { return s.Stats().FailedCommits > failed+1 })
	if got := s.Stats().Waiting; got > 650 {
		t.Errorf("%d groups of changes wait, of 300 Services", got)
	}
	if got := view(t, s, "s299"); got != "3 e299:10" {
		t.Errorf("a change that waits is read as %q", got)
	}
	logged := log.Take()
	if len(logged) != 1 || !strings.Contains(logged[0], "no space left") || !strings.Contains(logged[0], "free space") {
		t.Errorf("logged %q", logged)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	if logged := log.Take(); len(logged) != 1 || !strings.Contains(logged[0], "is written again") {
		t.Errorf("logged %q", logged)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s, _ = open(t, o)
	if got := s.Counts(); got[source.Service] != 301 || got[source.EndpointSlice] != 300 {
		t.Errorf("the file has %v", got)
	}
}

// TestDiskFullAtStart: not even an empty file can be made.
func TestDiskFullAtStart(t *testing.T) {
	if !withMounts(t) {
		return
	}
	dir := tmpfs(t, "size=4k")
	log := &testlog.Records{}
	o := opts(filepath.Join(dir, "cache.db"))
	o.CommitInterval = 10 * time.Millisecond
	o.Log = slog.New(log)
	s, cached := open(t, o)
	apply(s, service("web", 80))
	if logged := log.Take(); cached.Complete || len(logged) != 1 || !strings.Contains(logged[0], "no space left") {
		t.Errorf("%+v, logged %q", cached, logged)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=16m"); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, _ = open(t, o); names(s) != "web" {
		t.Errorf("the file has %q", names(s))
	}
}

// TestReadOnly: the records of a file that cannot be written are used, and written when it can.
func TestReadOnly(t *testing.T) {
	if !withMounts(t) {
		return
	}
	dir := tmpfs(t, "size=16m")
	log := &testlog.Records{}
	o := opts(filepath.Join(dir, "cache.db"))
	o.CommitInterval = 10 * time.Millisecond
	o.Log = slog.New(log)
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}

	remount(unix.MS_RDONLY)
	s, cached := Open(o)
	if logged := log.Take(); cached.Complete || len(logged) != 1 || !strings.Contains(logged[0], "read-only") {
		t.Errorf("without a file: %+v, logged %q", cached, logged)
	}
	remount(0)
	apply(s, service("web", 80), endpointSlice("web-1", "web", 2))
	s.InStep(source.Service, "1", time.Now())
	s.InStep(source.EndpointSlice, "1", time.Now())
	settle(t, s)
	s.Close()
	log.Take()

	remount(unix.MS_RDONLY)
	s, cached = Open(o)
	if logged := log.Take(); len(logged) != 1 || !strings.Contains(logged[0], "read-only") || !strings.Contains(logged[0], "mount the file system writable") {
		t.Errorf("logged %q", logged)
	}
	if !cached.Complete || cached.Why != "" || view(t, s, "web") != "80 web-1:2" || s.Counts()[source.EndpointSlice] != 1 {
		t.Errorf("the records are not used: %+v", cached)
	}
	apply(s, service("web", 81))
	if got := view(t, s, "web"); got != "81 web-1:2" {
		t.Errorf("Service web is %q", got)
	}
	remount(0)
	settle(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s, cached = open(t, o)
	if !cached.Complete || view(t, s, "web") != "81 web-1:2" {
		t.Errorf("the next start: %+v", cached)
	}

	// It becomes read-only while it is open.
	log.Take()
	s.Close()
	s, _ = open(t, o)
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	apply(s, service("web", 82)) // its descriptor may still write
	settle(t, s)
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}

func TestRemedy(t *testing.T) {
	for err, want := range map[error]string{
		unix.EACCES: "let this user write", unix.EROFS: "writable", unix.ENOSPC: "free space", unix.EDQUOT: "free space", unix.EIO: "check the disk",
		unix.ELOOP: "another path", unix.EMFILE: "descriptors", fmt.Errorf("x: %w", errLocked): "stop the other", unix.EXDEV: "see the error",
	} {
		if got := Remedy(fmt.Errorf("open: %w", err)); !strings.Contains(got, want) {
			t.Errorf("the remedy of %v is %q", err, got)
		}
		if _, ofKernel := err.(unix.Errno); !ofKernel {
			continue
		}
		if got := Remedy(fmt.Errorf("file sync error: %s", err)); !strings.Contains(got, want) { // as bbolt does
			t.Errorf("the remedy of the text %v is %q", err, got)
		}
	}
}

func TestDirectoryIsMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s, _ := open(t, idle(filepath.Join(dir, "cache.db")))
	apply(s, service("web", 80))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v", info, err)
	}
}
