package nft

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"sluice/proxy"
	"sluice/test/lab"
)

// TestReadBackBesideChanges has another program change its own table all the time, which makes the kernel say of each list that takes
// longer than that that it was interrupted: what is in ours can be read all the same.
func TestReadBackBesideChanges(t *testing.T) {
	n := lab.NewTestNamespace(t)
	f := fixtures[0]
	s := proxy.NewState(f.Family, f.settings())
	for i := range 10_000 {
		p := plain(f, i, i)
		s.Set(p.Name, p)
	}
	o := Options{Family: f.Family, NetNS: n.FD(), Shared: true}
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	reconcile(t, w, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	n.Must(t, "nft", "add table ip other; add set ip other busy { type ipv4_addr; }")
	ctx, stop := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "sh", "-ec", `while :; do echo 'add element ip other busy { 192.0.2.1 }'; echo 'delete element ip other busy { 192.0.2.1 }'; sleep 0.002; done | nft -i >/dev/null`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the pipe's programs, too
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = cmd.Wait() // it was killed
	}()
	time.Sleep(200 * time.Millisecond)
	if w, err = New(o); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c, err := dial(n.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before, err := c.generation()
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	stats := reconcile(t, w, s)
	took := time.Since(begun)
	if stats.Added+stats.Removed != 0 {
		t.Errorf("%+v, want nothing to do", stats)
	}
	after, err := c.generation()
	if n := after - before; err != nil || n < 20 {
		t.Errorf("the other program made %d changes in %v, too few to interrupt: %v", n, took, err)
	}
	t.Logf("%d changes by another program in %v", after-before, took)
}

// TestReadBackOfGrowingSets reads sets that have just been written, which the kernel still makes larger or smaller in its own time: all
// that is there is found.
func TestReadBackOfGrowingSets(t *testing.T) {
	n := lab.NewTestNamespace(t)
	f := fixtures[0]
	w, err := New(Options{Family: f.Family, NetNS: n.FD(), Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.conn.sendLimit = 64 << 10 // in pieces, so that the last one comes while the kernel is still at it
	for round := range 10 {
		s := proxy.NewState(f.Family, f.settings())
		for i := range []int{10, 1000}[round%2] {
			p := plain(f, i, i)
			s.Set(p.Name, p)
		}
		reconcile(t, w, s)
		if found := compare(t, n, f, s); len(found) > 0 {
			t.Errorf("round %d: %d differences, and there are none: %v", round, len(found), found[:min(len(found), 3)])
		}
		if stats := reconcile(t, w, s); stats.Added+stats.Removed > 0 {
			t.Errorf("round %d: %+v, want nothing to do", round, stats)
		}
	}
}
