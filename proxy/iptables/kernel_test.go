package iptables

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
	"sluice/test/testlog"
)

func TestMain(m *testing.M) {
	// Namespaces share the lock of legacy iptables: these tests are not to wait for others.
	os.Setenv("XTABLES_LOCKFILE", filepath.Join(os.TempDir(), "sluice-test-xtables.lock"))
	lab.Main(m)
}

// variants calls fn in a sub-test for each variant of iptables and each family, with a namespace of its own.
func variants(t *testing.T, fn func(t *testing.T, n *lab.Namespace, o Options)) {
	for _, v := range []string{NFT, Legacy} {
		for _, f := range proxy.Families {
			t.Run(v+"/"+f.String(), func(t *testing.T) {
				t.Parallel()
				n := lab.NewTestNamespace(t)
				need(t, n, v, f)
				fn(t, n, Options{Family: f, Variant: v, NetNS: n.FD()})
			})
		}
	}
}

// need skips a test where a variant is not installed, or the kernel does not have it.
func need(t testing.TB, n *lab.Namespace, variant string, f proxy.Family) {
	t.Helper()
	if f == proxy.IPv6 {
		variant = strings.Replace(variant, "iptables", "ip6tables", 1)
	}
	if _, err := n.Run(t.Context(), "", variant, "-t", "nat", "-S"); err != nil {
		t.Skipf("this machine cannot run %s: %v", variant, err)
	}
}

func open(t testing.TB, o Options) *Writer {
	t.Helper()
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *Writer) reconcile(t testing.TB, s *proxy.State) proxy.Stats {
	t.Helper()
	stats, err := w.Reconcile(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// command is a command of the writer's variant, like iptables-nft.
func (w *Writer) command(suffix string) string {
	name := w.variant.Name
	if w.opts.Family == proxy.IPv6 {
		name = strings.Replace(name, "iptables", "ip6tables", 1)
	}
	return name + suffix
}

func TestReconcileAndRestart(t *testing.T) {
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		settings := proxy.Settings{
			Detection:    proxy.Detection{Mode: proxy.DetectClusterCIDR, PodCIDRs: prefixes("10.244.0.0/16", "0.0.0.0/0", "fd00::/20", "::/0")},
			ServiceCIDRs: prefixes("10.96.0.0/16", "fd00:0:60::/48"),
		}
		s := manyServices(o.Family, 60, 20, settings)
		w := open(t, o)
		first := w.reconcile(t, s)
		if first.Added == 0 || first.Removed != 0 {
			t.Errorf("into an empty kernel: %+v", first)
		}
		if again := w.reconcile(t, s); again.Added+again.Removed != 0 {
			t.Errorf("the same again: %+v", again)
		}
		w = open(t, o)
		for f, r := range s.Routes() {
			pool, local := w.Slots(f)
			if !slices.Equal(pool, r.Pool.Slots) || local != nil {
				t.Fatalf("slots of %v read back: got %v, %v, want %v", f, pool, local, r.Pool.Slots)
			}
		}
		if stats := w.reconcile(t, s); stats.Added+stats.Removed != 0 {
			t.Errorf("after a restart: %+v", stats)
		}
		found, err := w.readFingerprint(t.Context())
		if err != nil || found != w.print {
			t.Errorf("the fingerprint read back is %x, want %x, %v", found, w.print, err)
		}
		if removed, err := Cleanup(t.Context(), Options{Family: o.Family, NetNS: o.NetNS}, ""); err != nil || !removed {
			t.Fatal(err)
		}
		for _, table := range []string{"nat", "filter"} {
			if out := n.Must(t, w.command("-save"), "-t", table); strings.Contains(strings.ToUpper(out), "SLUICE") {
				t.Errorf("after cleanup:\n%s", out)
			}
		}
	})
}

// TestIntruders has other programs change rules, and waits for them to be noticed and mended.
func TestIntruders(t *testing.T) {
	intruders := []struct{ name, script string }{
		{"flush nat", "IPT -t nat -F"},
		{"flush filter", "IPT -t filter -F"},
		{"delete our jump", `IPT -t nat -D PREROUTING -m comment --comment "sluice: Services" -j SLUICE-SERVICES`},
		{"double our jump", `IPT -t filter -A INPUT -m conntrack --ctstate NEW -m comment --comment "sluice: no endpoint" -j SLUICE-ANSWERS`},
		{"a rule of its own in our chain", `IPT -t nat -I SLUICE-SERVICES -j RETURN`},
		{"delete one rule", `IPT -t nat -D SLUICE-MASQUERADE 1`},
		{"a chain of our name", `IPT -t filter -N SLUICE-NOBODYS`},
		{"restore", "printf '*nat\nCOMMIT\n*filter\nCOMMIT\n' | IPT-restore"},
	}
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 20, 3, proxy.Settings{})
		w := open(t, o)
		w.reconcile(t, s)
		changed := make(chan struct{}, 10)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := w.Watch(ctx, func(proxy.Program) { changed <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		noticed := func(within time.Duration) bool {
			select {
			case <-changed:
				return true
			case <-time.After(within):
				return false
			}
		}
		if noticed(1500 * time.Millisecond) {
			t.Error("something was noticed, and nothing happened")
		}
		for _, i := range intruders {
			n.Must(t, "sh", "-ec", strings.ReplaceAll(i.script, "IPT", w.command("")))
			if !noticed(20 * time.Second) {
				t.Errorf("%s: not noticed", i.name)
			}
			if stats := w.reconcile(t, s); stats.Added+stats.Removed == 0 {
				t.Errorf("%s: nothing was mended", i.name)
			}
			if stats := w.reconcile(t, s); stats.Added+stats.Removed != 0 {
				t.Errorf("%s: mended again: %+v", i.name, stats)
			}
		}
		// Chains of others are none of our business.
		n.Must(t, w.command(""), "-t", "nat", "-N", "OTHER")
		plan := manyPlan(o.Family, 20, 3)
		d := s.Set(plan.Name, plan)
		if _, err := w.Apply(t.Context(), &d); err != nil {
			t.Fatal(err)
		}
		if noticed(2500 * time.Millisecond) {
			t.Error("noticed what was no change of ours, or our own")
		}
	})
}

// TestLock holds the lock of legacy iptables for longer than the writer waits.
func TestLock(t *testing.T) {
	for _, f := range proxy.Families {
		n := lab.NewTestNamespace(t)
		need(t, n, Legacy, f)
		s := manyServices(f, 3, 3, proxy.Settings{})
		w := open(t, Options{Family: f, Variant: Legacy, NetNS: n.FD(), LockTimeout: time.Second})
		w.reconcile(t, s)
		lock, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		plan := manyPlan(f, 0, 2)
		d := s.Set(plan.Name, plan)
		if _, err = w.Apply(t.Context(), &d); !errors.Is(err, ErrLocked) {
			t.Errorf("%v: Apply while the lock is held: %v", f, err)
		}
		if _, err := takeLock(t.Context(), 1); !errors.Is(err, ErrLocked) {
			t.Errorf("%v: the lock itself: %v", f, err)
		}
		n.Must(t, w.command("-save"), "-t", "nat") // reading needs no lock
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
			t.Fatal(err)
		}
		if stats := w.reconcile(t, s); stats.Added == 0 {
			t.Errorf("%v: after the lock was let go: %+v", f, stats)
		}
	}
}

// TestOldRestore has an iptables-restore that takes no lock: it is taken for it.
func TestOldRestore(t *testing.T) {
	n := lab.NewTestNamespace(t)
	need(t, n, NFT, proxy.IPv4)
	s := manyServices(proxy.IPv4, 3, 3, proxy.Settings{})
	w := open(t, Options{Family: proxy.IPv4, Variant: NFT, NetNS: n.FD(), LockTimeout: time.Second})
	w.variant.Version = "1.6.1"
	w.reconcile(t, s)
	lock, err := takeLock(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	plan := manyPlan(proxy.IPv4, 0, 2)
	d := s.Set(plan.Name, plan)
	if _, err := w.Apply(t.Context(), &d); !errors.Is(err, ErrLocked) {
		t.Errorf("Apply while the lock is held: %v", err)
	}
	lock.Close()
	if stats := w.reconcile(t, s); stats.Added == 0 {
		t.Errorf("after the lock was let go: %+v", stats)
	}
}

// TestFailedRestore has the kernel refuse a rule.
func TestFailedRestore(t *testing.T) {
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 3, 3, proxy.Settings{})
		w := open(t, o)
		w.reconcile(t, s)
		// An interface name that iptables does not take.
		s.SetSettings(proxy.Settings{Detection: proxy.Detection{Mode: proxy.DetectBridgeInterface, Interface: "a-name-that-is-too-long"}})
		_, err := w.Reconcile(t.Context(), s)
		if err == nil || !strings.Contains(err.Error(), "-i a-name-that-is-too-long -j RETURN") {
			t.Errorf("the error does not show the line that failed: %v", err)
		}
		var d proxy.Delta
		if _, err := w.Apply(t.Context(), &d); err == nil {
			t.Error("Apply goes on from a kernel whose rules are not known")
		}
		s.SetSettings(proxy.Settings{})
		if stats := w.reconcile(t, s); stats.Added+stats.Removed != 0 {
			t.Errorf("a restore that failed changed something: %+v", stats)
		}
	})
}

// TestVariants has rules of other programs in one variant, and in both.
func TestVariants(t *testing.T) {
	n := lab.NewTestNamespace(t)
	o := Options{Family: proxy.IPv4, NetNS: n.FD()}
	choice := func(want, because string) {
		t.Helper()
		v, why, mixed, err := Detect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if v.Name != want || !strings.Contains(why, because) || mixed != "" {
			t.Errorf("got %s, %q, %q, want %s, %q", v.Name, why, mixed, want, because)
		}
	}
	list, err := Variants(t.Context(), o)
	if err != nil || len(list) != 2 {
		t.Skipf("this machine has not both variants of iptables: %v, %v", list, err)
	}
	choice(list[0].Name, "choice")
	n.Must(t, Legacy, "-t", "nat", "-N", "CNI-HOSTPORT-DNAT")
	choice(Legacy, "1 chains")
	n.Must(t, Legacy, "-t", "nat", "-X", "CNI-HOSTPORT-DNAT")
	n.Must(t, Legacy, "-t", "mangle", "-N", "KUBE-IPTABLES-HINT")
	choice(Legacy, "kubelet")
	n.Must(t, NFT, "-t", "filter", "-N", "DOCKER")

	log := &testlog.Buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	w := open(t, o)
	if w.Variant().Name != Legacy || !strings.Contains(log.String(), "rules in both variants") {
		t.Errorf("with rules in both variants: %s is used, and the log says:\n%s", w.Variant(), log)
	}
	for version, want := range map[string]bool{"1.4.21": false, "1.6.1": false, "1.6.2": true, "1.8.9": true, "1.10.0": true, "2.0": true, "?": true} {
		if got := (Variant{Version: version}).restoreLocks(); got != want {
			t.Errorf("iptables-restore %s takes the lock: got %v", version, got)
		}
	}
	o.Variant = "iptables-none"
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "iptables-none") {
		t.Errorf("a variant that does not exist: %v", err)
	}
}

// TestOwnChangesAreNotCompared checks that a change of the writer's own is told from one by another program
// without that all rules are compared.
func TestOwnChangesAreNotCompared(t *testing.T) {
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 3, 3, proxy.Settings{})
		w := open(t, o)
		w.reconcile(t, s)
		stamps, err := w.openStamp()
		if err != nil {
			t.Fatal(err)
		}
		defer stamps.close()
		w.expects.stamps = &stamps
		before, err := stamps.read()
		if err != nil || !w.expects.compared(w.expects.get().changes, before, true) {
			t.Fatalf("the rules could not be taken for right: %v", err)
		}
		change := func(i, endpoints int) {
			plan := manyPlan(o.Family, i, endpoints)
			d := s.Set(plan.Name, plan)
			if _, err := w.Apply(t.Context(), &d); err != nil {
				t.Fatal(err)
			}
		}
		change(1, 2) // one table
		change(3, 1) // both
		change(2, 0)
		if e := w.expects.get(); !e.seenRight {
			t.Error("after changes of our own all rules would be compared")
		}
		n.Must(t, w.command(""), "-t", "nat", "-F", "SLUICE-SERVICES")
		change(1, 3)
		if e := w.expects.get(); e.seenRight {
			t.Error("after a change by another program, and one of our own, nothing would be compared")
		}
	})
}
