package agent

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice/agent/status"
	"sluice/test/rig"
)

// mountSmall mounts a file system in memory until the test ends.
func mountSmall(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("only root can mount a disk that is full: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all the space of a file system.
func fill(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !strings.Contains(err.Error(), "no space") {
		t.Fatal(err)
	}
	return filler
}

// mountFaulty mounts a disk whose blocks are written where space ends: from the moment that fault is called each write to a new block
// is an error of input and output, as of a worn out SD card.
func mountFaulty(t *testing.T) (dir string, fault func()) {
	t.Helper()
	under, dir := mountSmall(t, "40M"), t.TempDir()
	image := filepath.Join(under, "image")
	for _, command := range []string{"truncate -s 64M " + image, "mkfs.ext4 -q -E lazy_itable_init=0 " + image, "mount -o loop " + image + " " + dir} {
		words := strings.Fields(command)
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no disk can be made of a file here: %s: %v: %s", words[0], err, bytes.TrimSpace(out))
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("unmount: %v: %s", err, out)
		}
	})
	return dir, func() { fill(t, under) }
}

// TestCacheDisk has the disk of the cache fill up, be read-only, and fail: rules go on following the objects, and the status
// says what is wrong with the disk and what to do.
func TestCacheDisk(t *testing.T) {
	web := service("web", "vip1", nodePorts)
	says := func(c *cluster, words ...string) {
		t.Helper()
		c.Await(rig.Patience, "the cache's error: "+strings.Join(words, ", "), func(s status.Status) bool {
			return s.Healthy && s.Cache.LastError != "" && rig.ContainsAll(s.Cache.LastError, words)
		})
	}
	// follow makes changes that the cache has to take in.
	follow := func(c *cluster, host string) {
		t.Helper()
		many := ""
		for i := range 200 {
			many += "---\n" + strings.ReplaceAll(service("many-N", "vip3", ports), "many-N", "many-"+host+"-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
		}
		c.write("many.yaml", many[4:])
		c.write("web.yaml", web, endpoints("web", host))
		c.Reach(rig.Soon, "pod1 tcp vip1:80", host+":8080")
		c.Reach(0, "outside udp node:30080", host+":8080")
	}
	t.Run("full", func(t *testing.T) {
		dir := mountSmall(t, "512k")
		c := newCluster(t, "--data-dir", dir, "--cache-commit-interval", "200ms")
		c.write("web.yaml", web, endpoints("web", "pod2"))
		c.Run()
		filler := fill(t, dir)
		follow(c, "pod3")
		says(c, "no space", "free space")
		c.AwaitLog(rig.Soon, "level=WARN", "free space")
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		c.Await(rig.Patience, "no error of the cache", func(s status.Status) bool { return s.Cache.LastError == "" && s.Cache.Waiting == 0 })
		c.Stop()
		c.Run()
		c.AwaitLog(rig.Soon, "Services are served from the cache", "services=201")
	})
	t.Run("read-only", func(t *testing.T) {
		dir := mountSmall(t, "1M")
		c := newCluster(t, "--data-dir", dir)
		c.write("web.yaml", web, endpoints("web", "pod2"))
		c.Run()
		c.Stop()
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		c.Run()
		follow(c, "pod3")
		says(c, "read-only", "mount the file system writable")
	})
	t.Run("errors", func(t *testing.T) {
		dir, fault := mountFaulty(t)
		c := newCluster(t, "--data-dir", dir, "--cache-commit-interval", "200ms")
		c.write("web.yaml", web, endpoints("web", "pod2"))
		c.Run()
		fault()
		follow(c, "pod3")
		c.AwaitLog(rig.Patience, "level=WARN", "input/output error", "check the disk")
		says(c, "file system") // the kernel lets nobody write to it any more
		follow(c, "pod2")
	})
}
