package e2e

import (
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"sluice/proxy"
	"sluice/test/process"
	"sluice/test/rig"
	"sluice/test/testlog"
)

// none is what packets meet at a ClusterIP that nobody has.
const none = "silence|unreachable"

// testChangedServices changes what no server lets be changed at once, and what comes so when a Service is deleted and made again
// between two packets of the watch.
func testChangedServices(e *badEnv) {
	e.Run()
	web := e.service("web", "vip2")
	for _, s := range e.slices("web", "pod2") {
		e.send(event{kind: watch.Added, object: s})
	}
	e.send(event{kind: watch.Added, object: web})
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "pod2:8080")
	transactions := e.monitor()

	// What is deleted and made again are two changes: the first may be written before the second comes.
	e.send(event{kind: watch.Deleted, object: web}, event{kind: watch.Added, object: e.service("web", "vip3")})
	e.Reach(rig.Soon, "pod1 tcp vip3:80", "pod2:8080")
	e.Reach(0, "pod1 tcp vip2:80", none)
	e.send(event{kind: watch.Modified, object: e.service("web", "vip4")})
	e.Reach(rig.Soon, "pod1 tcp vip4:80", "pod2:8080")
	for _, f := range proxy.Families {
		e.inOneTransaction(transactions, e.Names["vip3"+rig.Suffix[f]].String(), e.Names["vip4"+rig.Suffix[f]].String())
	}
	e.Reach(0, "pod1 tcp vip3:80", none)

	// Families.
	e.send(event{kind: watch.Modified, object: e.service("web", "vip4", e.only("vip4", proxy.IPv4))})
	e.ReachIn(proxy.IPv6, rig.Soon, "pod1 tcp vip4:80", none)
	e.ReachIn(proxy.IPv4, 0, "pod1 tcp vip4:80", "pod2:8080")
	e.send(event{kind: watch.Modified, object: e.service("web", "vip5", e.only("vip5", proxy.IPv6))})
	e.ReachIn(proxy.IPv6, rig.Soon, "pod1 tcp vip5:80", "pod2:8080")
	e.Reach(0, "pod1 tcp vip4:80", none)
	e.ReachIn(proxy.IPv4, 0, "pod1 tcp vip5:80", none)
	e.send(event{kind: watch.Modified, object: e.service("web", "vip5")})
	e.Reach(rig.Soon, "pod1 tcp vip5:80", "pod2:8080")

	// Ports: another number, and another name, which no endpoint has.
	other := func(s *corev1.ServiceSpec) { s.Ports[0].Port = 81 }
	e.send(event{kind: watch.Modified, object: e.service("web", "vip5", other)})
	e.Reach(rig.Soon, "pod1 tcp vip5:81", "pod2:8080")
	e.Reach(0, "pod1 tcp vip5:80", none+"|refused")
	e.Reach(0, "pod1 udp vip5:80", "pod2:8080")
	e.send(event{kind: watch.Modified, object: e.service("web", "vip5", other, func(s *corev1.ServiceSpec) { s.Ports[0].Name = "renamed" })})
	e.Reach(rig.Soon, "pod1 tcp vip5:81", "refused")
	e.send(event{kind: watch.Modified, object: e.service("web", "vip5")})
	e.Reach(rig.Soon, "pod1 tcp vip5:80", "pod2:8080")

	// Types, as a server without selectors would send them.
	named := e.service("web", "vip5", func(s *corev1.ServiceSpec) {
		*s = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	})
	headless := e.service("web", "vip5", func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
	})
	for _, svc := range []*corev1.Service{named, headless} {
		e.send(event{kind: watch.Modified, object: svc})
		e.Reach(rig.Soon, "pod1 tcp vip5:80", none)
		e.send(event{kind: watch.Modified, object: e.service("web", "vip5")})
		e.Reach(rig.Soon, "pod1 tcp vip5:80", "pod2:8080")
	}
	e.send(event{kind: watch.Modified, object: named}, event{kind: watch.Modified, object: headless}, event{kind: watch.Modified, object: e.service("web", "vip2", nodePort(30080))})
	e.Reach(rig.Soon, "pod1 tcp vip2:80", "pod2:8080")
	e.Reach(0, "outside tcp node:30080", "pod2:8080")
	e.Reach(0, "pod1 tcp vip5:80", none)
	e.nothingToMend()
	e.AwaitNoProblem(rig.Patience)
}

// only makes a Service one of a single family.
func (e *env) only(vip string, f proxy.Family) func(*corev1.ServiceSpec) {
	ip := e.Names[vip+rig.Suffix[f]].String()
	return func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.ClusterIPs, s.IPFamilyPolicy = ip, []string{ip}, nil
	}
}

// nothingToMend holds that the kernel has what the agent wants, and nothing beside it.
func (e *env) nothingToMend() {
	e.T.Helper()
	if out, errs, code := e.Command("diff"); code != 0 {
		e.T.Errorf("sluice diff: code %d\n%s%s", code, out, errs)
	}
}

// monitor hears of the kernel's transactions until the test ends.
func (e *env) monitor() *testlog.Buffer {
	e.T.Helper()
	var out testlog.Buffer
	cmd := exec.Command("nft", "monitor")
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := process.Start(e.NS, cmd)
	e.must(err)
	e.T.Cleanup(p.Kill)
	e.Eventually(rig.Patience, "a monitor that hears", func() bool { // it tells not when it has begun
		e.OnNode("nft", "add table ip heard; delete table ip heard")
		return out.String() != ""
	})
	return &out
}

// inOneTransaction holds that the rules of one address went with those of another one that came.
func (e *env) inOneTransaction(heard *testlog.Buffer, went, came string) {
	e.T.Helper()
	lines := func(transaction, verb, address string) bool {
		for line := range strings.Lines(transaction) {
			if strings.HasPrefix(line, verb+" element") && strings.Contains(line, "service-ips") && strings.Contains(line, address+" .") {
				return true
			}
		}
		return false
	}
	var text string
	e.Eventually(rig.Soon, went+" goes with "+came, func() bool {
		text = heard.String()
		for transaction := range strings.SplitSeq(text, "# new generation") {
			if lines(transaction, "delete", went) && lines(transaction, "add", came) {
				return true
			}
		}
		return false
	})
}
