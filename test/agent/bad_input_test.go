package agent

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/agent/status"
	"sluice/proxy"
	"sluice/test/rig"
)

// badInputs are files that are wrong, or strange, and what the agent has to say of them. While one is in the directory and
// when it is gone, other Services are served as before.
var badInputs = []struct {
	name string
	// fill is repeated up to fifty megabytes; text comes after that.
	fill string
	text func(*cluster) []byte
	// says are the words of a problem in the status; none: there is no problem.
	says []string
	// logs are the words of a line of the log.
	logs []string
	// check looks further.
	check func(*cluster)
}{
	{name: "empty.yaml", text: text(""), says: []string{"empty.yaml", "empty", "fill it, or remove it"}},
	{name: "only-comments.yaml", text: text("# nothing\n---\n# here\n")},
	{name: "document-50MB.yaml", fill: "annotation: of fifty megabytes\n", says: []string{"document-50MB.yaml", "larger than 4 MiB", "split it"}},
	{name: "line-50MB.yaml", fill: "x", says: []string{"line-50MB.yaml", "larger than 4 MiB"}},
	{name: "document-50MB.json", fill: `{"a":`, says: []string{"document-50MB.json", "larger than 4 MiB"}},
	{name: "many-50MB.yaml", fill: otherDocument, text: text(badService(ports) + "---\n" + endpoints("bad", "pod3")), logs: []string{"many-50MB.yaml", "ConfigMap", "ignored"}, check: func(c *cluster) {
		c.Reach(rig.Patience, "pod1 tcp vip3:80", "pod3:8080") // the last document
	}},
	{name: "nested-4MB.yaml", text: big("", "["), says: []string{"nested-4MB.yaml"}},
	{name: "nested-4MB.json", text: big("", "["), says: []string{"nested-4MB.json"}},
	{name: "list-4MB.yaml", text: big(badService(ports)+"  finalizers: [", "1,"), says: []string{"list-4MB.yaml", "values", "split it"}},
	{name: "keys-4MB.yaml", text: big(badService(ports), "? a\n"), says: []string{"keys-4MB.yaml", "values", "split it"}},
	{name: "many-values.yaml", text: func(c *cluster) []byte { return big(badService(ports), "? a\n")(c)[:520_000] }, says: []string{"many-values.yaml"}},
	{name: "laughs.yaml", text: text(laughs), says: []string{"laughs.yaml"}},
	{name: "junk.yaml", text: junk, says: []string{"junk.yaml"}},
	{name: "zeros.json", text: func(*cluster) []byte { return make([]byte, 100_000) }, says: []string{"zeros.json", "NUL byte", "binary"}},
	{name: "unknown-kind.yaml", text: text("apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: g}\n"), logs: []string{"unknown-kind.yaml", "Gadget", "ignored"}},
	{name: "misspelt-kind.yaml", text: text("apiVersion: v1\nkind: Servise\nmetadata: {name: g}\n"), logs: []string{"misspelt-kind.yaml", "Servise", "ignored"}},
	{name: "wrong-type.yaml", text: text(badService("  ports: [{port: eighty}]\n")), says: []string{"wrong-type.yaml", "document 1", "spec.ports[0].port", "eighty", "integer"}},
	{name: "wrong-type-2.yaml", text: text("- a list\n"), says: []string{"wrong-type-2.yaml", "not a mapping"}},
	{name: "unknown-field.yaml", text: text(badService("  portz: [{port: 80}]\n")), says: []string{"unknown-field.yaml", "portz"}},
	{name: "ipv6-in-ipv4-slice.yaml", text: text(badService(ports) + "---\n" + strings.Replace(endpoints("bad", "pod1"), "$pod1", "$pod1v6", 1)),
		says: []string{"ipv6-in-ipv4-slice.yaml", "document 2", "endpoints[0].addresses[0]", "must be an IPv4 address"}},
	{name: "nodeport-0.yaml", text: text(badService("  type: NodePort\n  ports: [{port: 80, nodePort: 0}]\n")),
		says: []string{"nodeport-0.yaml", "spec.ports[0].nodePort", "nothing allocates node ports"}},
	{name: "nodeport-70000.yaml", text: text(badService("  type: NodePort\n  ports: [{port: 80, nodePort: 70000}]\n")),
		says: []string{"nodeport-70000.yaml", "spec.ports[0].nodePort", "70000", "between 1 and 65535"}},
	{name: "clusterip-unspecified.yaml", text: clusterIP("0.0.0.0"), says: []string{"clusterip-unspecified.yaml", "spec.clusterIPs[0]", "0.0.0.0", "unspecified"}},
	{name: "clusterip-loopback.yaml", text: clusterIP("127.0.0.1"), says: []string{"clusterip-loopback.yaml", "spec.clusterIPs[0]", "127.0.0.1", "loopback"}},
	{name: "clusterip-of-the-node.yaml", text: clusterIP("$node"), logs: []string{"default/bad", "is an address of this node"}, check: func(c *cluster) {
		c.ReachIn(proxy.IPv4, rig.Soon, "pod1 tcp node:80", "pod3:8080") // what was asked for
		c.Reach(0, "pod1 tcp node:8080", "node:8080")                    // and no more
	}},
	{name: "ten-thousand-endpoints.yaml", text: tenThousand, logs: []string{"10000 endpoints in one EndpointSlice"}, check: func(c *cluster) {
		s := c.Await(rig.Soon, "ten thousand endpoints", func(s status.Status) bool { return rig.Settled(s) && s.Families[0].Endpoints == 10_001 })
		c.T.Logf("ten thousand endpoints were written in %v", s.Families[0].LastSyncDuration)
		c.ReachIn(proxy.IPv4, 0, "pod1 tcp vip4:80", "many")
		c.ReachIn(proxy.IPv4, 0, "outside tcp vip4:80", "many")
	}},
}

func text(s string) func(*cluster) []byte {
	return func(c *cluster) []byte { return []byte(c.Expand(s)) }
}

// otherDocument is of a kind that is not read.
var otherDocument = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-no-use}\ndata: {text: " + strings.Repeat("abcdefgh", 600) + "}\n---\n"

// writeBad writes a bad input in one step.
func (c *cluster) writeBad(name, fill string, text []byte) {
	c.T.Helper()
	temp := filepath.Join(c.Dir, "bad")
	f, err := os.Create(temp)
	if err != nil {
		c.T.Fatal(err)
	}
	defer f.Close()
	if fill != "" {
		block := []byte(strings.Repeat(fill, 1+100_000/len(fill)))
		for written := 0; written < 50_000_000 && err == nil; written += len(block) {
			_, err = f.Write(block)
		}
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(c.Manifests, name))
	}
	if err != nil {
		c.T.Fatal(err)
	}
}

// big makes a document that is just small enough to be read.
func big(begin, rest string) func(*cluster) []byte {
	return func(c *cluster) []byte {
		begin := text(begin)(c)
		return append(begin, bytes.Repeat([]byte(rest), (4<<20-len(begin))/len(rest))...)
	}
}

// laughs is short, and has ten to the ninth values when its aliases are expanded.
const laughs = `apiVersion: v1
kind: Service
metadata: {name: bad}
a: &a [x, x, x, x, x, x, x, x, x, x]
b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]
c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]
d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]
e: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]
f: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]
g: &g [*f, *f, *f, *f, *f, *f, *f, *f, *f, *f]
h: &h [*g, *g, *g, *g, *g, *g, *g, *g, *g, *g]
spec: [*h, *h, *h, *h, *h, *h, *h, *h, *h, *h]
`

func junk(*cluster) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 200_000)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func badService(spec string) string { return service("bad", "vip3", spec) }

func clusterIP(ip string) func(*cluster) []byte {
	return func(c *cluster) []byte {
		return []byte(c.Expand(fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: bad}
spec: {clusterIP: %s, ports: [{name: t, port: 80}]}
---
`, ip) + endpoints("bad", "pod3")))
	}
}

// tenThousand is a slice whose addresses all are pod3's: it answers as "many".
func tenThousand(c *cluster) []byte {
	var b strings.Builder
	b.WriteString(c.Expand(service("many", "vip4", ports)) + `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: many-1, labels: {kubernetes.io/service-name: many}}
addressType: IPv4
ports: [{name: t, port: 9090}]
endpoints:
`)
	for i := range 10_000 {
		fmt.Fprintf(&b, "- {addresses: [10.250.%d.%d], nodeName: node}\n", i/250, 1+i%250)
	}
	return []byte(b.String())
}

// serveMany gives pod3 the addresses of tenThousand.
func (c *cluster) serveMany() {
	c.T.Helper()
	pod := c.Lab.Host("pod3")
	if _, err := pod.Run(c.T.Context(), "", "ip", "route", "add", "local", "10.250.0.0/16", "dev", "lo"); err != nil {
		c.T.Fatal(err)
	}
	c.OnNode("ip", "route", "add", "10.250.0.0/16", "via", c.Names["pod3"].String())
	var listener net.Listener
	err := pod.Do(func() (err error) {
		listener, err = net.Listen("tcp4", "0.0.0.0:9090")
		return err
	})
	if err != nil {
		c.T.Fatal(err)
	}
	c.T.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("many 0.0.0.0\n"))
			conn.Close()
		}
	}()
}

// maxMemory is what the agent may take at most for any input. The machines it is for have 512 MB.
const maxMemory = 128 << 20

func TestBadInput(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// To write 50 MB to a disk holds up this process and all that it measures.
	if dir, err := os.MkdirTemp("/dev/shm", "sluice-test-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		c.UseDir(dir)
		c.write("cidr.yaml", serviceCIDR)
	}
	c.serveMany()
	c.write("web.yaml", service("web", "vip1", nodePorts), endpoints("web", "pod2"))
	c.Run()
	clients := c.Connect(20*time.Millisecond, "pod1 tcp vip1:80", "outside tcp node:30080")
	for _, bad := range badInputs {
		t.Run(bad.name, func(t *testing.T) {
			defer func(all *testing.T) { c.T = all }(c.T)
			c.T = t
			before := c.Memory("VmRSS")
			var text []byte
			if bad.text != nil {
				text = bad.text(c)
			}
			c.writeBad(bad.name, bad.fill, text)
			defer os.Remove(filepath.Join(c.Manifests, bad.name)) // if the test ends early
			if bad.says != nil {
				c.AwaitProblem(rig.Patience, bad.says...)
				c.AwaitLog(rig.Soon, bad.says...)
			}
			if bad.logs != nil {
				c.AwaitLog(rig.Patience, bad.logs...)
			}
			if bad.check != nil {
				bad.check(c)
			}
			if bad.says == nil {
				c.AwaitNoProblem(rig.Soon)
			}
			c.Alive()
			c.Reach(0, "pod1 tcp vip1:80", "pod2:8080")
			if s, err := c.Status(); err != nil || !s.Healthy {
				t.Errorf("the agent is not healthy: %+v, %v", s.Reasons, err)
			}
			c.Remove(bad.name)
			c.AwaitNoProblem(rig.Patience)
			c.Await(rig.Patience, "one Service", func(s status.Status) bool { return rig.Settled(s) && s.Services == 1 })
			if n := c.Logged(bad.name, "as before"); n > 0 {
				t.Error("the agent wants a file mended that is gone")
			}
			highest := c.Memory("VmHWM")
			t.Logf("memory before %.1f MB, the highest so far %.1f MB", mb(before), mb(highest))
			if highest > maxMemory {
				t.Errorf("the agent took %.1f MB, more than %.1f MB", mb(highest), mb(maxMemory))
			}
		})
	}
	rig.EndUndisturbed(t, clients, "pod2:8080")
	c.Stop()
}

func mb(bytes int64) float64 { return float64(bytes) / (1 << 20) }
