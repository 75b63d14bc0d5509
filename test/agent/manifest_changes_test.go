package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/test/rig"
)

// TestManifests changes manifests on disk in all the ways in which editors, configuration management and the
// kubelet do: packets follow soon.
func TestManifests(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service("web", "vip1", nodePorts)
	c.write("web.yaml", web, endpoints("web", "pod2"))
	c.write("other.yaml", service("other", "vip2", ports), endpoints("other", "pod1"))
	c.Run()
	other := c.Connect(20*time.Millisecond, "pod2 tcp vip2:80") // is disturbed by none of it
	reach := func(hosts ...string) {
		t.Helper()
		c.Reach(rig.Soon, "pod1 tcp vip1:80", hosts...)
		c.Reach(0, "outside udp node:30080", hosts...)
	}
	reach("pod2:8080")

	c.write("web.yaml", web, endpoints("web", "pod2", "far1")) // an endpoint comes
	reach("pod2:8080", "far1:8080")
	c.write("web.yaml", web, endpoints("web", "pod3", "far1")) // is replaced
	reach("pod3:8080", "far1:8080")
	c.write("web.yaml", web, endpoints("web", "far1")) // goes
	reach("far1:8080")
	c.write("web.yaml", web, endpoints("web")) // the last one
	reach("refused")
	c.write("web.yaml", web)
	c.write("web-slices.yaml", endpoints("web", "pod3")) // in another file
	reach("pod3:8080")

	c.Remove("web.yaml")
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "silence")
	c.Reach(0, "outside tcp node:30080", "refused")
	c.write("web.yaml", web)
	reach("pod3:8080")

	c.rewriteInPlace("web-slices.yaml", c.Expand(endpoints("web", "pod2")))
	reach("pod2:8080")
	c.swapLinks("web-slices.yaml")
	c.AwaitNoProblem(rig.Soon)
	rig.EndUndisturbed(t, other, "pod1:8080")
}

// rewriteInPlace writes a file over what it held, slowly, as an editor does that does not rename.
func (c *cluster) rewriteInPlace(file, text string) {
	c.T.Helper()
	f, err := os.OpenFile(filepath.Join(c.Manifests, file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		c.T.Fatal(err)
	}
	defer f.Close()
	for _, part := range []string{text[:len(text)/3], text[len(text)/3 : len(text)/2], text[len(text)/2:]} {
		if _, err := f.WriteString(part); err != nil {
			c.T.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		c.Reach(0, "pod1 tcp vip1:80", "pod3:8080") // nothing of it is in force before it is whole
	}
	if s, err := c.Status(); err != nil || len(s.Problems) > 0 {
		c.T.Errorf("a file that is being written is a problem: %+v, %v", s.Problems, err)
	}
}

// swapLinks replaces a file by a link as the kubelet makes them for ConfigMaps: to ..data/FILE, and ..data is a link to a
// directory, replaced at once by another.
func (c *cluster) swapLinks(file string) {
	c.T.Helper()
	must := func(err error) {
		c.T.Helper()
		if err != nil {
			c.T.Fatal(err)
		}
	}
	at := func(names ...string) string { return filepath.Join(append([]string{c.Manifests}, names...)...) }
	for i, host := range []string{"pod3", "pod2", "far1"} {
		version := "..version-" + host
		must(os.Mkdir(at(version), 0o755))
		must(os.WriteFile(at(version, file), []byte(c.Expand(endpoints("web", host))), 0o644))
		must(os.Symlink(version, at("..new")))
		must(os.Rename(at("..new"), at("..data")))
		if i == 0 {
			must(os.Symlink(filepath.Join("..data", file), filepath.Join(c.Dir, "link")))
			must(os.Rename(filepath.Join(c.Dir, "link"), at(file)))
		}
		c.Reach(rig.Soon, "pod1 tcp vip1:80", host+":8080")
	}
	must(os.RemoveAll(at("..version-pod3")))
}

// TestBrokenManifest breaks what worked: the old state stays until it is mended.
func TestBrokenManifest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service("web", "vip1", ports)
	c.write("web.yaml", web, endpoints("web", "pod2"))
	c.Run()
	whole := c.Expand(web + "---\n" + endpoints("web", "pod3"))
	for name, broken := range map[string]string{
		"cut off":       whole[:len(whole)-25],
		"not YAML":      "{[" + whole,
		"empty":         "",
		"a wrong field": whole + "port: 5\n",
	} {
		c.Process.Write("web.yaml", broken)
		c.AwaitProblem(rig.Soon, "web.yaml")
		c.Reach(0, "pod1 tcp vip1:80", "pod2:8080|pod3:8080") // a slice that is whole counts
		if s, err := c.Status(); err != nil || !s.Healthy {
			t.Errorf("%s: the agent is not healthy: %+v, %v", name, s.Reasons, err)
		}
		c.write("web.yaml", web, endpoints("web", "pod2"))
		c.AwaitNoProblem(rig.Soon)
		c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod2:8080")
	}

	// A file that others cannot read, and then can, is for another user than root: root reads all. But a
	// directory in a file's place nobody reads.
	c.Remove("web.yaml")
	if err := os.Mkdir(filepath.Join(c.Manifests, "web.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.AwaitProblem(rig.Soon, "web.yaml", "directory")
}

// TestDirectory takes the whole directory away and gives it back.
func TestDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	web := service("web", "vip1", ports)
	c.write("web.yaml", web, endpoints("web", "pod2"))
	c.Run()
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	clients := c.Connect(10*time.Millisecond, "pod1 tcp vip1:80")
	away := c.Manifests + "-away"
	rename(c.Manifests, away)
	c.AwaitProblem(rig.Soon, "no such directory", "make it")
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")

	// An agent that starts without it serves from its cache,
	c.Stop()
	c.Start()
	c.Await(rig.Soon, "the cache", func(s status.Status) bool { return s.Healthy && !s.Synced && s.Cache.Serving && len(s.Problems) > 0 })
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")

	// and one that has no cache either leaves what it finds.
	c.Stop()
	if err := os.Remove(filepath.Join(c.Dir, "objects.db")); err != nil {
		t.Fatal(err)
	}
	c.Start()
	s := c.Await(rig.Soon, "the missing directory", func(s status.Status) bool { return len(s.Problems) > 0 })
	if s.Healthy || s.Synced || len(s.Reasons) == 0 {
		t.Errorf("the status does not say that no objects are known: %+v", s)
	}
	if _, _, code := c.Process.Command("status"); code != 1 {
		t.Errorf("the exit code of status is %d, want 1", code)
	}
	time.Sleep(100 * time.Millisecond)
	c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")

	rename(away, c.Manifests)
	c.Await(rig.Soon, "rules in the kernel", func(s status.Status) bool { return s.Healthy && rig.Settled(s) && len(s.Problems) == 0 })
	rig.EndUndisturbed(t, clients, "pod2:8080")
	c.write("web.yaml", web, endpoints("web", "pod3"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "pod3:8080")

	// Another directory in its place.
	rename(c.Manifests, away)
	if err := os.Mkdir(c.Manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	c.write("web.yaml", web, endpoints("web", "far1"))
	c.Reach(rig.Soon, "pod1 tcp vip1:80", "far1:8080")
}
