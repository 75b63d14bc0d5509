package iptables

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// TestFight has another program flush a chain of the system again and again, faster than it is mended, and then stop.
func TestFight(t *testing.T) {
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 20, 3, proxy.Settings{})
		w := open(t, o)
		w.reconcile(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changed := make(chan struct{}, 100)
		if err := w.Watch(ctx, func(proxy.Program) { changed <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		serve := func(d time.Duration) { // as the agent's loop does
			for end := time.After(d); ; {
				select {
				case <-changed:
					w.reconcile(t, s)
				case <-end:
					return
				}
			}
		}
		for range 20 {
			n.Must(t, w.command(""), "-t", "nat", "-F", "PREROUTING")
			serve(300 * time.Millisecond)
		}
		for end := time.Now().Add(30 * time.Second); ; { // two seconds, on a machine with nothing else to do
			serve(tick / 2)
			found, err := w.readFingerprint(ctx)
			if err == nil && found == w.print {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("after the last change the rules are not as they should be: %v", err)
			}
		}
	})
}

// TestSpelling has rules that are read back otherwise than they were written, each time in the same way: they are
// written anew with growing pauses.
func TestSpelling(t *testing.T) {
	t.Parallel()
	n := lab.NewTestNamespace(t)
	need(t, n, NFT, proxy.IPv4)
	s := manyServices(proxy.IPv4, 3, 3, proxy.Settings{})
	w := open(t, Options{Family: proxy.IPv4, Variant: NFT, NetNS: n.FD()})
	save := filepath.Join(t.TempDir(), "save")
	script := "#!/bin/sh\n" + w.variant.Save + ` "$@" | sed 's/ -j MASQUERADE/ -j masquerade/'` + "\n"
	if err := os.WriteFile(save, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	w.variant.Save = save
	w.reconcile(t, s)
	var repairs []time.Time
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	changed := make(chan struct{}, 100)
	if err := w.Watch(ctx, func(proxy.Program) { changed <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil {
		select {
		case <-changed:
			repairs = append(repairs, time.Now())
			w.reconcile(t, s)
		case <-ctx.Done():
		}
	}
	// At 1 and 2 s, then after 2 s and after 4 s, and later on a machine with much to do.
	if len(repairs) < 1 || len(repairs) > 4 {
		t.Errorf("written anew %d times in 9 s: %v", len(repairs), repairs)
	}
}

// TestIncompatible has rules of nft in a table of iptables, so that iptables-save does not list it.
func TestIncompatible(t *testing.T) {
	for _, f := range proxy.Families {
		n := lab.NewTestNamespace(t)
		need(t, n, NFT, f)
		o := Options{Family: f, NetNS: n.FD(), Variant: NFT}
		family := map[proxy.Family]string{proxy.IPv4: "ip", proxy.IPv6: "ip6"}[f]
		// Of no interest to who has nothing there.
		n.Must(t, Command(f)+"-nft", "-t", "nat", "-A", "PREROUTING", "-j", "RETURN")
		foreign := "rule " + family + " nat PREROUTING meta mark set numgen random mod 2"
		n.Must(t, "nft", "add "+foreign)
		if removed, err := Cleanup(t.Context(), o, ""); removed || err != nil {
			t.Errorf("%v: clean-up of nothing: %v, %v", f, removed, err)
		}
		n.Must(t, "nft", "flush chain "+family+" nat PREROUTING")

		s := manyServices(f, 3, 3, proxy.Settings{})
		w := open(t, o)
		w.reconcile(t, s)
		n.Must(t, "nft", "add "+foreign)
		before := n.Must(t, "nft", "list ruleset")
		for range 3 { // each start would add one more jump
			w = open(t, o)
			_, err := w.Reconcile(t.Context(), s)
			var incompatible *IncompatibleError
			if !errors.As(err, &incompatible) || incompatible.Table != "nat" || !strings.Contains(err.Error(), "--proxy-mode=nftables") {
				t.Errorf("%v: Reconcile: %v", f, err)
			}
		}
		if removed, err := Cleanup(t.Context(), o, ""); removed || err == nil {
			t.Errorf("%v: clean-up of what cannot be listed: %v, %v", f, removed, err)
		}
		if after := n.Must(t, "nft", "list ruleset"); after != before {
			t.Errorf("%v: rules were changed: \n%s\nnow\n%s", f, before, after)
		}
		n.Must(t, "nft", "flush chain "+family+" nat PREROUTING")
		if stats := w.reconcile(t, s); stats.Added != 1 {
			t.Errorf("%v: after the foreign rule went: %+v", f, stats)
		}
	}
}

// TestOtherVariant has rules of ours in both variants: those of one are removed.
func TestOtherVariant(t *testing.T) {
	for _, f := range proxy.Families {
		n := lab.NewTestNamespace(t)
		need(t, n, NFT, f)
		need(t, n, Legacy, f)
		s := manyServices(f, 3, 3, proxy.Settings{})
		for _, name := range []string{Legacy, NFT} {
			open(t, Options{Family: f, NetNS: n.FD(), Variant: name}).reconcile(t, s)
		}
		if removed, err := Cleanup(t.Context(), Options{Family: f, NetNS: n.FD()}, NFT); err != nil || !removed {
			t.Errorf("%v: %v, %v", f, removed, err)
		}
		if out := n.Must(t, Command(f)+"-legacy-save"); strings.Contains(out, "SLUICE") {
			t.Errorf("%v: left in the other variant:\n%s", f, out)
		}
		if stats := open(t, Options{Family: f, NetNS: n.FD(), Variant: NFT}).reconcile(t, s); stats.Added+stats.Removed > 0 {
			t.Errorf("%v: the one to keep was changed: %+v", f, stats)
		}
	}
}

// TestForeignComment has a rule of another program whose comment speaks of a chain of ours.
func TestForeignComment(t *testing.T) {
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 3, 3, proxy.Settings{})
		w := open(t, o)
		n.Must(t, w.command(""), "-t", "nat", "-A", "PREROUTING", "-m", "comment", "--comment", "instead of -j SLUICE-SERVICES", "-j", "RETURN")
		w.reconcile(t, s)
		if err := w.Cleanup(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out := n.Must(t, w.command("-save"), "-t", "nat"); !strings.Contains(out, `"instead of -j SLUICE-SERVICES" -j RETURN`) {
			t.Errorf("another program's rule is gone:\n%s", out)
		}
	})
}

// TestForeignLead has a rule of another program that leads to a chain of ours, and that iptables cannot delete by what
// iptables-save prints of it: it is in nobody's way.
func TestForeignLead(t *testing.T) {
	variants(t, func(t *testing.T, n *lab.Namespace, o Options) {
		s := manyServices(o.Family, 3, 3, proxy.Settings{})
		w := open(t, o)
		w.reconcile(t, s)
		n.Must(t, w.command(""), "-t", "nat", "-A", "PREROUTING", "-m", "recent", "--name", "seen", "--set", "-j", "SLUICE-SERVICES")
		if stats := w.reconcile(t, s); stats.Added+stats.Removed > 0 {
			t.Errorf("another program's rule is mended: %+v", stats)
		}
		if found, err := w.readFingerprint(t.Context()); err != nil || found != w.print {
			t.Errorf("another program's rule is in the fingerprint: %v", err)
		}
		n.Must(t, w.command(""), "-t", "nat", "-F", "OUTPUT")
		if stats := w.reconcile(t, s); stats.Added != 1 {
			t.Errorf("the jump that went: %+v", stats)
		}
		if err := w.Cleanup(t.Context()); err != nil && !strings.Contains(err.Error(), "-m recent") {
			t.Errorf("clean-up: %v", err)
		}
		out := n.Must(t, w.command("-save"), "-t", "nat")
		if strings.Contains(out, "-A SLUICE-") || strings.Contains(out, `comment "sluice:`) {
			t.Errorf("after clean-up:\n%s", out)
		}
	})
}

// TestCleanupSaysWhatFailed has one of the two variants fail.
func TestCleanupSaysWhatFailed(t *testing.T) {
	n := lab.NewTestNamespace(t)
	need(t, n, NFT, proxy.IPv4)
	o := Options{Family: proxy.IPv4, NetNS: n.FD()}
	list, err := Variants(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	open(t, o).reconcile(t, manyServices(proxy.IPv4, 3, 3, proxy.Settings{}))
	for i := range list {
		o.Installed = append([]Variant{}, list...)
		o.Installed[i].Save = "/bin/false"
		if _, err := Cleanup(t.Context(), o, ""); err == nil || !strings.Contains(err.Error(), "/bin/false") {
			t.Errorf("%s cannot list: %v", list[i], err)
		}
	}
}

// TestHangingProgram ends programs that do not end by themselves, and leave children that hold their pipes.
func TestHangingProgram(t *testing.T) {
	read := func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	write := func(w io.Writer) error {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return err
			}
		}
	}
	for name, fns := range map[string]struct {
		in  func(io.Writer) error
		out func(io.Reader) error
	}{"waited for": {}, "read from": {out: read}, "written to": {in: write}, "both": {in: write, out: read}} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		start := time.Now()
		err := Run(ctx, 0, fns.in, fns.out, "/bin/sh", "-c", "sleep 20 & sleep 20")
		cancel()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "killed after") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
