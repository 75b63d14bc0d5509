package check

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"sluice/agent/kube"
	"sluice/agent/status"
	"sluice/agent/sysctl"
	"sluice/proxy"
	"sluice/proxy/kubeproxy"
	"sluice/proxy/nft"
	"sluice/proxy/probe"
)

// want is what an Item must be: its level, and parts of its detail and remedy.
type want struct {
	level          Level
	detail, remedy string
}

func compare(t *testing.T, what string, got Item, want want) {
	t.Helper()
	if got.Level != want.level || !strings.Contains(got.Detail, want.detail) || !strings.Contains(got.Remedy, want.remedy) || (got.Level == OK) != (got.Remedy == "") {
		t.Errorf("%s: %s %q, remedy %q; want %+v", what, got.Level, got.Detail, got.Remedy, want)
	}
}

func TestJudgeParameters(t *testing.T) {
	const mb = 1 << 20
	tests := []struct {
		what string
		got  Item
		want want
	}{
		{"on", judgeSwitch("x", "a.x", parameter{value: 1}), want{OK, "", ""}},
		{"off, the agent can set it", judgeSwitch("x", "a.x", parameter{writable: true}), want{Warn, "off", "sysctl -w a.x=1"}},
		{"off, read-only", judgeSwitch("x", "a.x", parameter{}), want{Fail, "cannot be set", "sysctl -w a.x=1 on the host"}},
		{"not there", judgeSwitch("x", "a.x", parameter{missing: true}), want{Fail, "no a.x", "kernel"}},

		{"rp_filter off", judgeReversePath(map[string]int{"all": 0, "eth0": 0}), want{OK, "", ""}},
		{"rp_filter loose by all", judgeReversePath(map[string]int{"all": 2, "eth0": 1}), want{OK, "", ""}},
		{"rp_filter strict by all", judgeReversePath(map[string]int{"all": 1, "eth0": 0, "wlan0": 2}), want{Warn, "at eth0:", "rp_filter=2"}},
		{"rp_filter strict at two", judgeReversePath(map[string]int{"all": 0, "wlan0": 1, "eth0": 1, "default": 1, "lo": 1}), want{Warn, "eth0, wlan0", "rp_filter=2"}},

		{"no bridge", judgeBridge("b", parameter{missing: true}, false), want{OK, "no bridge", ""}},
		{"bridge without the module", judgeBridge("b", parameter{missing: true}, true), want{Warn, "br_netfilter", "modprobe br_netfilter"}},
		{"bridge, off", judgeBridge("b", parameter{writable: true}, true), want{Warn, "off", "net.bridge.b=1"}},
		{"bridge, on", judgeBridge("b", parameter{value: 1}, true), want{OK, "", ""}},

		{"conntrack not loaded", judgeConntrack(parameter{missing: true}, sysctl.Flows{Count: 0, Max: 0}, 512*mb), want{Warn, "not loaded", "modprobe nf_conntrack"}},
		{"conntrack as wanted", judgeConntrack(parameter{value: 32768}, sysctl.Flows{Count: 10, Max: 32768}, 512*mb), want{OK, "32768", ""}},
		{"conntrack small", judgeConntrack(parameter{value: 4096, writable: true}, sysctl.Flows{Count: 10, Max: 4096}, 512*mb), want{Warn, "4096", "nf_conntrack_max=32768"}},
		{"conntrack small and fixed", judgeConntrack(parameter{value: 4096}, sysctl.Flows{Count: 10, Max: 4096}, 512*mb), want{Warn, "cannot be set", "on the host"}},
		{"conntrack large", judgeConntrack(parameter{value: 4 << 20}, sysctl.Flows{Count: 10, Max: 4 << 20}, 512*mb), want{Warn, "1280 of 512 MB", "nf_conntrack_max=32768"}},
		{"conntrack filling", judgeConntrack(parameter{value: 40000}, sysctl.Flows{Count: 33000, Max: 40000}, 512*mb), want{Warn, "33000 of 40000", "nf_conntrack_max=80000"}},
		{"conntrack full", judgeConntrack(parameter{value: 40000}, sysctl.Flows{Count: 39999, Max: 40000}, 512*mb), want{Fail, "dropped", "nf_conntrack_max=80000"}},
	}
	for _, test := range tests {
		compare(t, test.what, test.got, test.want)
	}
}

func TestJudgeOthers(t *testing.T) {
	serving := kubeproxy.Leftover{Place: "iptables-nft", Table: "nat", Chains: []string{"KUBE-SERVICES"}}
	canary := kubeproxy.Leftover{Place: "iptables-nft", Table: "mangle", Chains: []string{"KUBE-PROXY-CANARY"}}
	table := kubeproxy.Leftover{Place: proxy.ModeNFTables, Table: "kube-proxy"}
	kept := kubeproxy.Leftover{Place: "iptables-nft", Table: "nat", Kept: []string{"KUBE-MARK-MASQ"}}
	none := errors.New("not permitted")
	tests := []struct {
		what string
		got  Item
		want want
	}{
		{"no leftovers", judgeLeftovers(nil, nil), want{OK, "none", ""}},
		{"chains", judgeLeftovers([]kubeproxy.Leftover{serving}, nil), want{Fail, "table nat of iptables-nft", "sluice cleanup --kube-proxy"}},
		{"table", judgeLeftovers([]kubeproxy.Leftover{table}, none), want{Fail, "nftables table kube-proxy", "sluice cleanup --kube-proxy"}},
		{"canary", judgeLeftovers([]kubeproxy.Leftover{canary}, nil), want{Warn, "serve nothing", "sluice cleanup --kube-proxy"}},
		{"kept ones alone", judgeLeftovers([]kubeproxy.Leftover{kept}, nil), want{OK, "KUBE-MARK-MASQ in table nat of iptables-nft", ""}},
		{"not seen", judgeLeftovers(nil, none), want{Warn, "not permitted", "root"}},

		{"no k3s", judgeK3s(k3s{}), want{OK, "not on this machine", ""}},
		{"agent", judgeK3s(k3s{agent: true}), want{OK, "servers", ""}},
		{"server", judgeK3s(k3s{server: true, agent: true, file: "/c"}), want{Fail, "/c", "disable-kube-proxy: true"}},
		{"server, off", judgeK3s(k3s{server: true, disabled: true, file: "/c"}), want{OK, "off by /c", ""}},
		{"server, unreadable", judgeK3s(k3s{server: true, err: fs.ErrPermission}), want{Warn, "permission", "root"}},

		{"no iptables", judgeVariants("", nil), want{OK, "none", ""}},
		{"one variant", judgeVariants("iptables-nft", map[string]int{"iptables-nft": 3, "iptables-legacy": 0}), want{OK, "iptables-nft", ""}},
		{"both", judgeVariants("iptables-nft", map[string]int{"iptables-nft": 3, "iptables-legacy": 1}), want{Warn, "has 3 rules, iptables-legacy 1", "update-alternatives"}},
		{"the other", judgeVariants("iptables-nft", map[string]int{"iptables-nft": 0, "iptables-legacy": 1}), want{Warn, "in iptables-legacy", "/usr/sbin/iptables-legacy"}},
	}
	for _, test := range tests {
		compare(t, test.what, test.got, test.want)
	}
}

func TestJudgeForward(t *testing.T) {
	pods := podRanges{list: []string{"10.42.0.0/16"}}
	tests := []struct {
		what, save string
		want       want
	}{
		{"nothing", "", want{OK, "accepts", ""}},
		{"accepting", "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n", want{OK, "accepts", ""}},
		{"another table", "*mangle\n:FORWARD DROP [0:0]\nCOMMIT\n", want{OK, "accepts", ""}},
		{"dropping", "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n", want{Fail, "policy", "iptables-nft -I FORWARD -d 10.42.0.0/16 -j ACCEPT"}},
		{"Docker", "*filter\n:FORWARD DROP [0:0]\n:DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER\nCOMMIT\n", want{Fail, "Docker", "iptables-nft -I DOCKER-USER -s 10.42.0.0/16 -j ACCEPT"}},
		{"ufw", "*filter\n:FORWARD DROP [0:0]\n:ufw-before-forward - [0:0]\nCOMMIT\n", want{Fail, "ufw", "ufw route allow to 10.42.0.0/16"}},
		{"flannel", "*filter\n:FORWARD DROP [0:0]\n:FLANNEL-FWD - [0:0]\n-A FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD\nCOMMIT\n", want{OK, "FLANNEL-FWD", ""}},
		{"flannel's chain that nothing leads to", "*filter\n:FORWARD DROP [0:0]\n:FLANNEL-FWD - [0:0]\nCOMMIT\n", want{Fail, "policy", "ACCEPT"}},
		{"both directions", "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s 10.42.0.0/16 -j ACCEPT\n-A FORWARD -d 10.42.0.0/16 -j ACCEPT\nCOMMIT\n", want{OK, "10.42.0.0/16", ""}},
		{"one direction", "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s 10.42.0.0/16 -j ACCEPT\nCOMMIT\n", want{Fail, "policy", "-d 10.42.0.0/16"}},
	}
	for _, test := range tests {
		var fw forward
		if err := fw.reader().Read(strings.NewReader(test.save), "iptables-save", ""); err != nil {
			t.Errorf("%s: %v", test.what, err)
		}
		compare(t, test.what, judgeForward("iptables-nft", proxy.IPv4, fw, pods), test.want)
	}
}

// What is not known of the pods' ranges is not made up, and all that is known is used.
func TestJudgeForwardRanges(t *testing.T) {
	var fw forward
	if err := fw.reader().Read(strings.NewReader("*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s 10.42.0.0/16 -j ACCEPT\n-A FORWARD -d 10.42.0.0/16 -j ACCEPT\nCOMMIT\n"), "iptables-save", ""); err != nil {
		t.Fatal(err)
	}
	two := podRanges{list: []string{"10.42.0.0/16", "10.43.0.0/16"}}
	compare(t, "one of two", judgeForward("iptables-nft", proxy.IPv4, fw, two), want{Fail, "policy",
		"-I FORWARD -s 10.42.0.0/16 -j ACCEPT && iptables-nft -I FORWARD -d 10.42.0.0/16 -j ACCEPT && iptables-nft -I FORWARD -s 10.43.0.0/16 -j ACCEPT && "})
	compare(t, "unknown", judgeForward("iptables-nft", proxy.IPv4, fw, podRanges{}), want{Fail, "policy", "-d PODS -j ACCEPT (PODS is the pods' address range, which is not known"})
	compare(t, "pods of the other family", judgeForward("iptables-nft", proxy.IPv6, fw, podRanges{others: true}), want{Warn, "no pods of IPv6 are known", "-d PODS"})
}

func TestPodRanges(t *testing.T) {
	l := looker{Options: Options{Root: t.TempDir()}}
	check := func(what string, v4, v6 podRanges) {
		t.Helper()
		if diff := cmp.Diff([]podRanges{v4, v6}, []podRanges{l.pods(proxy.IPv4), l.pods(proxy.IPv6)}, cmp.AllowUnexported(podRanges{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("unknown", podRanges{}, podRanges{})
	l.manifests = &manifests{podCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}}
	check("the Node's", podRanges{list: []string{"10.1.0.0/24"}}, podRanges{others: true})
	file := l.path("run/flannel/subnet.env")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.0.1/24\nFLANNEL_IPV6_NETWORK=fd42::/56\nFLANNEL_MTU=1450\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	check("flannel's", podRanges{list: []string{"10.42.0.0/16"}, others: true}, podRanges{list: []string{"fd42::/56"}, others: true})
	l.Config.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("10.3.0.0/16")}
	check("configured", podRanges{list: []string{"10.2.0.0/16", "10.3.0.0/16"}}, podRanges{others: true})
}

func TestJudgeBaseChains(t *testing.T) {
	pods := func(f proxy.Family) podRanges {
		return podRanges{list: []string{map[proxy.Family]string{proxy.IPv4: "10.42.0.0/16", proxy.IPv6: "fd42::/56"}[f]}, others: true}
	}
	at := func(c nft.BaseChain) []Item { return judgeBaseChains([]nft.BaseChain{c}, pods) }
	forward := uint32(unix.NF_INET_FORWARD)
	tests := []struct {
		what  string
		chain nft.BaseChain
		want  want
	}{
		{"accepting", nft.BaseChain{Family: "inet", Table: "fw", Name: "forward", Hook: forward}, want{OK, "none", ""}},
		{"input", nft.BaseChain{Family: "inet", Table: "fw", Name: "in", Hook: unix.NF_INET_LOCAL_IN, Drop: true}, want{OK, "none", ""}},
		{"iptables' own", nft.BaseChain{Family: "ip", Table: "filter", Name: "FORWARD", Hook: forward, Drop: true}, want{OK, "none", ""}},
		{"dropping", nft.BaseChain{Family: "inet", Table: "fw", Name: "fwd", Hook: forward, Drop: true}, want{Warn, "drops", "nft insert rule inet fw fwd ip6 daddr fd42::/56 accept"}},
		{"firewalld", nft.BaseChain{Family: "inet", Table: "firewalld", Name: "filter_FORWARD", Hook: forward}, want{Warn, "rejects", "--zone=trusted --add-source=10.42.0.0/16 --add-source=fd42::/56 &&"}},
	}
	for _, test := range tests {
		items := at(test.chain)
		if len(items) != 1 {
			t.Errorf("%s: %v", test.what, items)
			continue
		}
		compare(t, test.what, items[0], test.want)
	}
}

func TestJudgeAccess(t *testing.T) {
	now := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		what   string
		access kube.Access
		err    error
		item   string
		want   want
	}{
		{"no kubeconfig", kube.Access{}, fmt.Errorf("none of x: %w", fs.ErrNotExist), "kubeconfig", want{Fail, "none of x", "--manifests"}},
		{"unreadable", kube.Access{Kubeconfig: "/k"}, fmt.Errorf("open /k: %w", fs.ErrPermission), "kubeconfig", want{Warn, "open /k", "root"}},
		{"named and missing", kube.Access{Kubeconfig: "/k"}, fmt.Errorf("open /k: %w", fs.ErrNotExist), "kubeconfig", want{Fail, "open /k", "one that is there"}},
		{"broken", kube.Access{Kubeconfig: "/k"}, errors.New("read /k: no cluster"), "kubeconfig", want{Fail, "no cluster", "correct"}},
		{"found", kube.Access{Kubeconfig: "/k"}, nil, "kubeconfig", want{OK, "/k", ""}},
		{"all", kube.Access{Server: "https://s", Allowed: []string{"services", "nodes"}}, nil, "API server", want{OK, "services, nodes", ""}},
		{"forbidden", kube.Access{Problems: []string{"nodes: forbidden (403): a; b; bind it"}}, nil, "API server", want{Fail, "forbidden (403): a; b", "bind it"}},
		{"old server", kube.Access{Lesser: []string{"servicecidrs: not there"}}, nil, "API server", want{Warn, "not there", "none"}},
		{"certificate", kube.Access{NotAfter: now.AddDate(1, 0, 0)}, nil, "client certificate", want{OK, "2028-05-01", ""}},
		{"certificate ends", kube.Access{NotAfter: now.AddDate(0, 0, 29)}, nil, "client certificate", want{Warn, "2027-05-30", "renew"}},
		{"certificate ended", kube.Access{NotAfter: now.AddDate(0, 0, -1)}, nil, "client certificate", want{Fail, "2027-04-30", "renew"}},
	}
	for _, test := range tests {
		found := false
		for _, item := range judgeAccess(test.access, test.err, now) {
			if item.Name == test.item {
				compare(t, test.what, item, test.want)
				found = true
			}
		}
		if !found {
			t.Errorf("%s: no item %q", test.what, test.item)
		}
	}
}

func TestJudgeMachine(t *testing.T) {
	now := time.Date(2027, 5, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		what string
		got  Item
		want want
	}{
		{"clock", judgeClock(now, now.AddDate(0, -1, 0), true, false), want{OK, "", ""}},
		{"1970", judgeClock(time.Unix(100, 0), time.Time{}, false, false), want{Fail, "1970", "NTP"}},
		{"before the installation", judgeClock(now, now.AddDate(0, 1, 0), true, false), want{Fail, "installed", "NTP"}},
		{"installed in another time zone", judgeClock(now, now.Add(time.Hour), true, false), want{OK, "", ""}},
		{"not synchronised", judgeClock(now, now, false, true), want{Warn, "not synchronised", "NTP"}},
		{"no hardware clock", judgeClock(now, now, false, false), want{Warn, "while it is off", "NTP"}},

		{"directory", judgeCache(directory{path: "/d", made: "/d", writable: true, free: 1 << 30}, true), want{OK, "1024 MB", ""}},
		{"directory to be made", judgeCache(directory{path: "/v/d", made: "/v", writable: true, free: 1 << 30}, true), want{OK, "makes /v/d", ""}},
		{"read-only", judgeCache(directory{path: "/d", made: "/d", free: 1 << 30}, true), want{Warn, "cannot be written", "--data-dir"}},
		{"not root", judgeCache(directory{path: "/d", made: "/d", free: 1 << 30}, false), want{Warn, "for this user", "root"}},
		{"in memory", judgeCache(directory{path: "/d", made: "/d", writable: true, inMemory: true, free: 1 << 30}, true), want{Warn, "in memory", "--data-dir"}},
		{"little space", judgeCache(directory{path: "/d", made: "/d", writable: true, free: 100 << 20}, true), want{Warn, "100 MB", "room"}},
		{"no space", judgeCache(directory{path: "/d", made: "/d", writable: true, free: 1 << 20}, true), want{Fail, "1 MB", "room"}},
		{"a file", judgeCache(directory{path: "/d", made: "/d", err: errors.New("/d is not a directory")}, true), want{Fail, "not a directory", "--data-dir"}},

		{"an agent", judgeSocket("/s", 412, nil), want{OK, "pid 412", ""}},
		{"no agent", judgeSocket("/s", 0, &status.NotRunningError{Socket: "/s"}), want{OK, "no agent runs at /s", ""}},
		{"no access", judgeSocket("/s", 0, fmt.Errorf("ask: %w", fs.ErrPermission)), want{Warn, "needs root", "root"}},
		{"no socket", judgeSocket("/s", 0, errors.New("/s is not a socket")), want{Fail, "not a socket", "--socket"}},

		{"free port", judgePort("healthz port", 10256, false, "", false), want{OK, "free", ""}},
		{"ours", judgePort("healthz port", 10256, true, "sluice", false), want{OK, "sluice", ""}},
		{"kube-proxy", judgePort("metrics port", 10249, true, "kube-proxy", false), want{Fail, "kube-proxy runs", "cleanup --kube-proxy"}},
		{"k3s", judgePort("metrics port", 10249, true, "k3s-server", false), want{Fail, "k3s-server", "disable-kube-proxy"}},
		{"someone", judgePort("metrics port", 10249, true, "nginx", false), want{Fail, "nginx", "--metrics-bind-address"}},
		{"an agent unseen", judgePort("metrics port", 10249, true, "", true), want{OK, "most likely by the agent", ""}},
		{"someone beside an agent", judgePort("metrics port", 10249, true, "nginx", true), want{Fail, "nginx", "--metrics-bind-address"}},
		{"someone unseen", judgePort("metrics port", 10249, true, "", false), want{Warn, "cannot be seen", "--metrics-bind-address"}},
	}
	for _, test := range tests {
		compare(t, test.what, test.got, test.want)
	}
}

func TestJudgeKernel(t *testing.T) {
	host := probe.Host{Distribution: probe.RaspberryPiOS, Kernel: "6.12", Modules: true}
	feature := func(family string, good bool) probe.Feature {
		f := probe.Feature{Name: "numgen", Family: family, OK: good, Config: []string{"CONFIG_NFT_NUMGEN"}, Module: "nft_numgen",
			Package: map[string]string{probe.RaspberryPiOS: "linux-image-rpi-v8"}}
		if !good {
			f.Error = "no such file or directory"
		}
		return f
	}
	missing := probe.Set{Name: proxy.ModeNFTables, Features: []probe.Feature{feature("IPv4", true), feature("IPv6", false)}}
	good := probe.Set{Name: "iptables-nft", Features: []probe.Feature{feature("IPv4", true), feature("IPv6", true)}}
	compare(t, "missing", judgeSet(host, missing, false)[0], want{Fail, "missing for IPv6 (CONFIG_NFT_NUMGEN): no such", "apt install linux-image-rpi-v8"})
	compare(t, "missing, not needed", judgeSet(host, missing, true)[0], want{Warn, "missing for IPv6", "modprobe -a nft_numgen"})
	compare(t, "good", judgeSet(host, good, false)[0], want{OK, "IPv4, IPv6", ""})
	compare(t, "not tried", judgeSet(host, probe.Set{Name: "x", Err: "not permitted", Remedy: "run as root"}, false)[0], want{Warn, "not permitted", "root"})
	optional := probe.Set{Name: proxy.ModeNFTables, Features: []probe.Feature{{Name: "owner (kernel 6.99)", Family: "IPv4",
		Optional: true, Module: "nf_tables", Config: []string{"CONFIG_NF_TABLES"}, Error: "operation not supported"}}}
	item := judgeSet(host, optional, false)[0]
	compare(t, "of a later kernel", item, want{Warn, "the running kernel 6.12 is older than this: operation not supported", "none is needed"})
	if strings.Contains(item.Remedy, "modprobe") {
		t.Errorf("of a later kernel: no module helps, remedy %q", item.Remedy)
	}
	r := probe.Result{Host: host, NFTables: &missing}
	compare(t, "half a mode", judgeMode(r, proxy.ModeAuto), want{Warn, "IPv6 is not served", "below"})
	r.IPTables = []probe.Set{good}
	compare(t, "the other mode", judgeMode(r, proxy.ModeAuto), want{OK, "iptables: iptables-nft has all", ""})
	r = probe.Result{Host: host, NFTables: &probe.Set{Name: proxy.ModeNFTables, Features: []probe.Feature{feature("IPv4", false)}}}
	compare(t, "no mode", judgeMode(r, proxy.ModeAuto), want{Fail, "CONFIG_NFT_NUMGEN", "below"})
	compare(t, "no modules", judgeModules(probe.Host{Kernel: "6.12"}), want{Warn, "6.12", "start the machine again"})
}

// The report tells what was looked at from what was not, and in one line.
func TestSummary(t *testing.T) {
	several := errors.New("iptables-save v1.8:\n  Could not fetch rule set:\n" + strings.Repeat("x", 500))
	for want, items := range map[string][]Item{
		"no failures, no warnings": {ok("a", "")},
		"1 failure, 2 warnings":    {fail("a", "r", ""), warn("b", "r", ""), warn("c", "r", "")},
		"no failures, 1 warning; 2 of 4 things could not be looked at: run sluice check as root": {ok("a", ""), warn("b", "r", ""), unseen("c", several), unseen("d", fs.ErrPermission)},
	} {
		var r Report
		for _, item := range items {
			r.add(item)
		}
		if got := r.summary(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	denied := errors.New("iptables-save v1.8: Could not fetch rule set generation id: Permission denied (you must be root)")
	compare(t, "denied", unseen("c", denied), want{Warn, "needs root", "as root"})
	if detail := unseen("c", denied).Detail; detail != "needs root" {
		t.Errorf("%q", detail)
	}
	if detail := unseen("c", several).Detail; strings.Contains(detail, "\n") || len(detail) > maxLine+50 || !strings.Contains(detail, "v1.8: Could not fetch") {
		t.Errorf("%q", detail)
	}
}
