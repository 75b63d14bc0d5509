package kube

import (
	"crypto/tls"
	"net/netip"
	"testing"
	"time"

	"sluice/test/cluster"
)

// authority signs certificates of clients, and of servers on loopback.
type authority struct{ *cluster.Authority }

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a, err := cluster.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return &authority{a}
}

func (a *authority) issue(t *testing.T, name string, from, until time.Time) cluster.Pair {
	t.Helper()
	p, err := a.Issue(name, from, until, netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (a *authority) valid(t *testing.T, name string) cluster.Pair {
	t.Helper()
	return a.issue(t, name, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

func tlsOf(t *testing.T, p cluster.Pair) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
